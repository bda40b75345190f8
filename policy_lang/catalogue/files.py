"""Pages about P4xx and P9xx: files, and comments that silence findings. See the package for how they are written."""

PAGES = r"""
P401 file that cannot be read
    The file does not exist, or its permissions do not allow reading it.

    Bad:

        policy "chat" lang 1
        extends "bse.policy"
        # --- base.policy
        policy "base" lang 1
        limits {
          llm_calls  20
        }

    Good:

        policy "chat" lang 1
        extends "base.policy"
        # --- base.policy
        policy "base" lang 1
        limits {
          llm_calls  20
        }

    Fix: unsafe: it writes the name of a file in the same folder that may be meant.

P402 directory instead of a file
    `policy check` searches directories for files; everything else takes a file.

    Bad:

        policy "chat" lang 1
        extends "org"
        # --- org/base.policy
        policy "base" lang 1
        limits {
          llm_calls  20
        }

    Good:

        policy "chat" lang 1
        extends "org/base.policy"
        # --- org/base.policy
        policy "base" lang 1
        limits {
          llm_calls  20
        }

P403 file too large
    A policy file is at most 1 MiB.

P404 not a text file
    Policies are UTF-8 text, with or without a byte order mark. Lines end with LF or CRLF.

P405 path outside of the root
    A policy may ask only for files inside one directory: that of the first file, unless the host names another
    (`--root DIR`, `load(..., root=...)`). Paths are relative to the file they stand in; links are followed
    first.

    Bad:

        policy "chat" lang 1
        extends "../base.policy"

    Good:

        policy "chat" lang 1
        extends "org/base.policy"
        # --- org/base.policy
        policy "base" lang 1
        limits {
          llm_calls  20
        }

P406 files that ask for each other
    `extends` and `import` must not lead back to the same file. The message shows the circle.

    Bad:

        policy "chat" lang 1
        extends "base.policy"
        # --- base.policy
        policy "base" lang 1
        extends "main.policy"

    Good:

        policy "chat" lang 1
        extends "base.policy"
        # --- base.policy
        policy "base" lang 1
        limits {
          llm_calls  20
        }

P407 chain of files too long
    A file, what it extends or imports, what that does, and so on: 16 at most.

P408 statement that an import does not bring
    `import` brings tools, breakers, `let`s and tests. Limits and all that goes with them are inherited by
    `extends` only, so that there is one place to look for them.

    Bad:

        policy "chat" lang 1
        import "shared.policy"
        # --- shared.policy
        policy "shared" lang 1
        limits {
          llm_calls  20
        }
        tool "shell"  deny

    Good:

        policy "chat" lang 1
        import "shared.policy"
        # --- shared.policy
        policy "shared" lang 1
        tool "shell"  deny

P409 settings that are no TOML
    `policy.toml` and `pyproject.toml` are TOML: tables in square brackets, `key = value` below them, texts in
    quotes.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls  20
        }
        # --- policy.toml
        [lint]
        tools = ["search_web"

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20
        }
        # --- policy.toml
        [lint]
        tools = ["search_web"]

P410 setting that does not fit
    `[lint]` knows `tools`, `clients`, `host` and `no_allow`, each a list of texts, and the tables `levels` and
    `ignore`. A level is `off`, `note`, `warning` or `error`; an error of the language stays one.

    Bad:

        policy "chat" lang 1
        limits {
          llm_calls  20
        }
        # --- policy.toml
        [lint.levels]
        P354 = "of"

    Good:

        policy "chat" lang 1
        limits {
          llm_calls  20
        }
        # --- policy.toml
        [lint.levels]
        P354 = "off"

    Fix: unsafe: it writes the key that may be meant. An editor offers it; `policy fix` changes policies only.

P900 unused suppression
    A `# policy: allow` that silences nothing may hide a finding to come. Remove it. This is told only where the
    rule could have found something: not in a file with errors, and not of rules that need settings, or a search
    through all states, which are not there.

    Bad:

        policy "chat" lang 1
        # policy: allow P319 kept for the next release
        limits {
          llm_calls  20
        }

    Good:

        policy "chat" lang 1
        # policy: allow P319 kept for the next release
        param most = 20
        limits {
          llm_calls  20
        }

    Fix: safe: it removes the comment.

P901 suppression without a reason
    Say why the finding is right here: `# policy: allow P319 kept for the next release`.

    Bad:

        policy "chat" lang 1
        # policy: allow P319
        let most = 20
        limits {
          llm_calls  most
        }

    Good:

        policy "chat" lang 1
        # policy: allow P319 kept for the next release
        let most = 20
        limits {
          llm_calls  20
        }

P902 malformed suppression
    A suppression is a comment on a line of its own above the statement it is for: `# policy: allow CODE
    reason`.

    Bad:

        policy "chat" lang 1
        # policy: ignore P319
        let most = 20
        limits {
          llm_calls  most
        }

    Good:

        policy "chat" lang 1
        # policy: allow P319 kept for the next release
        let most = 20
        limits {
          llm_calls  20
        }

    Fix: safe: it moves a comment from behind a statement to the line above. What cannot be read has to be written
    anew.
"""
