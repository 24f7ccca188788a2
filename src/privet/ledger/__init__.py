"""What has been spent on a data set, by whom and for what; charged before the release."""

from privet.ledger._audit import Verification
from privet.ledger._chain import Entry, Scope
from privet.ledger._fingerprint import fingerprint
from privet.ledger._ledger import Ledger
from privet.ledger._promise import Odometer

__all__ = ["Entry", "Ledger", "Odometer", "Scope", "Verification", "fingerprint"]
