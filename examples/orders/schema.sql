-- The tables of the shop. Each effect of a workflow has the order as its key, so that a repeated step changes nothing.
create schema orders;

create table orders.orders (
    number     bigint generated always as identity primary key,
    product    text not null,
    amount     integer not null check (amount > 0)
);

create table orders.reservations (
    number     bigint primary key references orders.orders,
    rack      text not null,
    released   boolean not null default false
);

create table orders.payments (
    number     bigint primary key references orders.orders,
    amount     integer not null,
    reference  text not null
);

create table orders.shipments (
    number     bigint primary key references orders.orders,
    parcel     text not null
);
