"""What nodes of modes ask in words of their own, as the last user turn."""

from __future__ import annotations

BEST_ANSWER = (
    "No more tools can be called. Give the best answer to my request that the conversation so far allows, "
    "in the language of my request. Say plainly what is missing or uncertain."
)
"""Asked of a mode's last node when a limit is met before there is an answer (spec 1.2)."""

CHECK = (
    "Before I see your answer, check this draft of it against my request and everything above:\n"
    "1. Does it answer all that I asked, and keep to each condition that I gave?\n"
    "2. Is every fact in it right, and does it agree with the results of the tools?\n"
    "3. Is it clear, and does no part of it contradict another?\n"
    "If something is wrong or missing, write the whole corrected answer. If nothing is, repeat the draft word for word. "
    "Write the answer alone, without a word about the draft or this check.\n\n"
    "<draft>\n{draft}\n</draft>"
)
"""Asked of a second pass; `{draft}` stands for the candidate (spec 1.3)."""
