"""All that needs the package `mcp`, to be imported together when a run has a server."""

from app.mcp.client import Connection as Connection
from app.mcp.eliciting import calling as calling
from app.mcp.http import web_link as web_link
from app.mcp.stdio import stdio_link as stdio_link
from app.mcp.toolset import resource_tools as resource_tools
from app.mcp.toolset import server_tool as server_tool
