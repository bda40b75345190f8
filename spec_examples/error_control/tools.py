"""The tools of these examples. What they do depends on their arguments alone, so that every run is the same."""


def search(query: str) -> str:
    """Search the encyclopedia.

    Args:
        query: what to look for.
    """
    return f"What the encyclopedia says about {query}."


def fetch(page: str) -> str:
    """Fetch a page of the handbook.

    Args:
        page: its name.
    """
    if page.startswith("missing"):
        raise FileNotFoundError(f"there is no page {page}")
    return f"The page {page}."


def job_status(job: str) -> str:
    """Tell how far a job has come.

    Args:
        job: its name.
    """
    return f"The job {job} is still running."


def ask_left(question: str) -> str:
    """Ask the department on the left.

    Args:
        question: what to ask.
    """
    return f"{question}? The department on the right knows."


def ask_right(question: str) -> str:
    """Ask the department on the right.

    Args:
        question: what to ask.
    """
    return f"{question}? The department on the left knows."
