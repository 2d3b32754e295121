// WebRTC reaches addresses past every interception and resolver.
delete window.RTCPeerConnection;
delete window.webkitRTCPeerConnection;
