// WebRTC would bypass every interception and the resolver.
delete window.RTCPeerConnection;
delete window.webkitRTCPeerConnection;
