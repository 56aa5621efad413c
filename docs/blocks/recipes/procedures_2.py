from reports import app
# the block of the page
assert close_shop.name == "procedure.erp.shop.close_day"
