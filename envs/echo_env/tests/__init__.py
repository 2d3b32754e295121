"""Tests of echo_env."""
