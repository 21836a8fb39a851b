"""ShareFetch and ShareAcknowledge: members of share groups get records and say what became of them (KIP-932). Begin
with `requests.py`, what both have in common.
"""
