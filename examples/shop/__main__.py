"""Customers: `python -m shop`."""

from __future__ import annotations

from shop.tasks import Order, charge, q


def main() -> None:
    with q:
        for number, (customer, item, card) in enumerate(
            [
                ("ann@a.example", "tea", "4000-0001"),
                ("bob@b.example", "cup", "4000-0002"),
                ("cat@a.example", "tea", "stolen"),
            ],
            start=1,
        ):
            charge.put(Order(number, customer, item, cents=450, card=card), key=f"order {number}", on_conflict="ignore")
            print(f"order {number}: {item} for {customer}")


if __name__ == "__main__":
    main()
