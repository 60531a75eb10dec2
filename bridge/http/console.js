// Shows the OpenAPI document in Swagger UI. The receipt of each pull is put into the forms of ack, nack and extend.
"use strict";

const SETTLING = ["/v1/ack", "/v1/nack", "/v1/extend"];

function offerReceipt(original, { specActions, Im }) {
  return (path, method, response) => {
    const receipt = response.headers?.["x-oms-receipt"];
    if (receipt) {
      for (const settling of SETTLING) {
        specActions.changeParam([settling, "post"], "x-oms-receipt", "header", Im.List([receipt]));
      }
    }
    return original(path, method, response);
  };
}

// Swagger UI shows a message of a produce stream on several lines; it is sent on one.
function joinLines(request) {
  if (request.headers["Content-Type"] === "application/x-ndjson") {
    try {
      request.body = JSON.stringify(JSON.parse(request.body));
    } catch {
      // several messages, one on each line
    }
  }
  return request;
}

SwaggerUIBundle({
  dom_id: "#console",
  url: "openapi.json",
  validatorUrl: null, // the default asks another host
  deepLinking: true,
  displayRequestDuration: true,
  requestInterceptor: joinLines,
  plugins: [{ statePlugins: { spec: { wrapActions: { setResponse: offerReceipt } } } }],
});
