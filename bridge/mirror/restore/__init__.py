"""`mirror restore`: rows of the mirror back through a bridge.

`selection.py` reads them with Spark, `revived.py` makes messages of them, `sender.py` sends, `state.py` remembers how
far it came. At least once: what was sent when a run broke off and is not in the state yet is sent again.
"""
