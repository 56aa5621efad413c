from tenders import app

from sereno.notifications.operations import show_recipient

people = app.recipients
for key in ("ada", "bob"):
    people.upsert(key)


# the block of the page

chosen = {}
for key in ("ada", "bob"):
    rows = app.database.run(show_recipient(key, tenant=None)).preferences
    chosen[key] = [row.digest for row in rows if row.category == "comments"]
assert chosen == {"ada": [3600, 86400], "bob": [0, 86400]}, chosen
app.close()
