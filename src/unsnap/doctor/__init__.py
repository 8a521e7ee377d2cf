"""Is this file what you think it is?"""

from unsnap.doctor.examine import Report, diagnose, examine
from unsnap.doctor.mismatch import Finding

__all__ = ["Finding", "Report", "diagnose", "examine"]
