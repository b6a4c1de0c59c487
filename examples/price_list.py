"""The value of each customer's basket, which follows a changing table of prices.

A price that changes, or a product that is taken off the list, changes every basket that has it.

    penstock log serve
    penstock topic create prices
    penstock topic create basket-items
    penstock run examples/price_list.py --until drained
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
