"""`mirror restore`: rows of the mirror back through a bridge.

`selection.py` reads them, `to_message.py` makes messages of them, `sender.py` sends, `state.py` records the progress.
Delivery is at least once: what was sent when a run broke off and is not in the state yet is sent again.
"""
