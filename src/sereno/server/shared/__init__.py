"""What the API and the dashboard share: authentication, access to the database and caches. Needs the extra `server`."""
