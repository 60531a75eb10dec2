// Pulls so many messages with HttpClient, and prints each as a line of JSON.
import java.net.URI;
import java.net.http.*;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.Base64;
import java.util.stream.Collectors;

class Pull {
    public static void main(String[] arguments) throws Exception {
        var client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        for (int number = 0; number < Integer.parseInt(arguments[1]); number++) {
            var request = HttpRequest.newBuilder(URI.create(arguments[0])).build();
            var pulled = client.send(request, BodyHandlers.ofByteArray());
            var headers = pulled.headers().map().entrySet().stream()
                .map(each -> '"' + each.getKey().toLowerCase() + "\":\"" + each.getValue().get(0) + '"')
                .collect(Collectors.joining(","));
            var body = Base64.getEncoder().encodeToString(pulled.body());
            System.out.println("{\"status\":" + pulled.statusCode() + ",\"headers\":{" + headers + "},\"body\":\"" + body + "\"}");
        }
    }
}
