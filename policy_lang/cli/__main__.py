"""``python -m policy_lang.cli``."""

from policy_lang.cli import main

raise SystemExit(main())
