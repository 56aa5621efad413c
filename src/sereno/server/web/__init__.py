"""The dashboard: pages rendered on the server, live in the browser, without a build step. Needs the extra `server`."""
