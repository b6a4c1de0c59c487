"""The value of each customer's basket, which follows a changing table of prices.

A price that changes, or a product that is taken off the list, changes every basket that has it.

    penstock log serve  # in a terminal of its own
    penstock topic create prices
    penstock topic create basket-items
    echo '{"product": "tea", "price": "2.50"}' | penstock produce prices
    echo '{"customer": "ada", "product": "tea", "quantity": 2}' | penstock produce basket-items
    penstock run examples/price_list.py --until drained
    penstock view baskets --key ada

Then change a price, and look again after another run. A row with `"ended": true` takes a product off the list, and a
quantity of 0 takes it out of a basket:

    echo '{"product": "tea", "price": "3.00"}' | penstock produce prices
    penstock run examples/price_list.py --until drained
    penstock view baskets --key ada
"""

import penstock as ps


def baskets(out: str = "baskets.db") -> ps.Pipeline:
    """Read prices and items of baskets; keep what each basket costs, and which items have no price."""
    prices = ps.read_topic("prices", schema="product string, price decimal(10,2), ended boolean")
    items = ps.read_topic("basket-items", schema="customer string, product string, quantity bigint")
    price = prices.view("product", "price", remove="ended")
    item = items.view(["customer", "product"], "quantity", remove="quantity = 0")
    both = item.join(price, on="product", how="left")
    value = (
        both.with_columns(cost="quantity * price")
        .group_by("customer")
        .aggregate(value="sum(cost)", items="sum(quantity)", without_price="count_if(price IS NULL)")
        .named("value")
    )
    return ps.Pipeline("baskets", value.to(ps.table("basket", connection=f"sqlite:///{out}", mode="upsert")))
