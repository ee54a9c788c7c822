"""A small shop whose slow work is done by a worker. In this folder's parent:

python -m shop                                  three orders are placed, and the customers need not wait
penstock worker shop.tasks:q --until-empty      cards are charged, mails are sent
pytest                                          the same without a worker, a bank or a mail server
"""
