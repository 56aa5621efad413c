"""The JSON API of the server. Needs the extra `server`."""
