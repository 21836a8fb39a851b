"""Authorization of requests that the controller decides. It happens where the client is connected: on the broker that
forwards the request, or on the controller. What the client may not do is taken out of the request, and the errors for
it are added to the response. The handlers in `handlers/forwarded/` use these parts.
"""
