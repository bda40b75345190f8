"""Why a step decided as it did, in English."""
