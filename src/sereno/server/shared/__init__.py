"""What both doors of the server, the API and the pages, share: who asks, and what they stand on. Needs `server`."""
