"""The client in TypeScript."""

from support.typescript import driver as driver
