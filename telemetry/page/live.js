"use strict";
(function () {
  var conn = document.getElementById("conn");
  var events = new EventSource("events");
  events.onopen = function () { conn.textContent = "live"; conn.className = "on"; };
  events.onerror = function () {
    conn.textContent = "not connected: these are the last figures";
    conn.className = "off";
  };
  events.onmessage = function (e) {
    var parts = JSON.parse(e.data);
    for (var id in parts) {
      if (id === "title") { document.title = parts[id]; continue; }
      var at = document.getElementById(id);
      if (at) { at.innerHTML = parts[id]; }
    }
  };
})();
