"""The server's pages, for people: drawn on the server, live in the browser, without a build step. Needs `server`."""
