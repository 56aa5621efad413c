"""Public tenders, told to the phones of those who want to bid: what NotiChileC built by hand, on sereno."""
