"""An environment of tools as people have written them, by FastMCP."""

from typing import Annotated, Any, ClassVar
from uuid import uuid4

from fastmcp import FastMCP
from pydantic import Field

from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State


class ShopEnvironment(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True

    def __init__(self):
        mcp = FastMCP("shop")
        self.basket = []

        @mcp.tool
        def add_to_basket(
            article: Annotated[str, Field(description="What to buy")], count: int = 1
        ) -> dict:
            """Put something into the basket."""
            self.basket += [article] * count
            return {"article": article, "basket": len(self.basket)}

        @mcp.tool
        def total(prices: dict[str, float]) -> float:
            """Say what the basket costs."""
            return sum(prices[article] for article in self.basket)

        @mcp.tool
        async def greet(name: str) -> str:
            """Greet a customer."""
            return f"Hello, {name}!"

        super().__init__(mcp)
        self._state = State(episode_id=str(uuid4()), step_count=0)

    def reset(self, seed=None, episode_id=None, **kwargs: Any) -> Observation:
        self.basket.clear()
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        return Observation(done=False, reward=0.0, metadata={"status": "open"})

    def _step_impl(self, action: Action, timeout_s=None, **kwargs: Any) -> Observation:
        return Observation(done=False, reward=0.0, metadata={"error": "use the tools"})

    def step(self, action: Action, timeout_s=None, **kwargs: Any) -> Observation:
        self._state.step_count += 1
        return super().step(action, timeout_s=timeout_s, **kwargs)

    async def step_async(self, action: Action, timeout_s=None, **kwargs: Any) -> Observation:
        self._state.step_count += 1
        return await super().step_async(action, timeout_s=timeout_s, **kwargs)

    @property
    def state(self) -> State:
        return self._state


class SmallShop(ShopEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = False


app = create_app(
    ShopEnvironment, CallToolAction, CallToolObservation, env_name="shop", max_concurrent_envs=8
)
small = create_app(SmallShop, CallToolAction, CallToolObservation, env_name="small")
