"""The server's JSON door: what a person or a program may see and do, over HTTP. Needs the extra `server`."""
