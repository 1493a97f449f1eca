import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Scanner;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;

/** Lines of "api key, version, error code, request in hex" on standard input; the response with which Kafka refuses each, in hex. */
public class ErrorResponses {
    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            short version = Short.parseShort(words[1]);
            try {
                ByteBuffer body = ByteBuffer.wrap(HexFormat.of().parseHex(words.length > 3 ? words[3] : ""));
                AbstractRequest request = AbstractRequest.parseRequest(
                    ApiKeys.forId(Short.parseShort(words[0])), version, new ByteBufferAccessor(body)).request;
                AbstractResponse response = request.getErrorResponse(0, Errors.forCode(Short.parseShort(words[2])).exception());
                if (response == null) {
                    System.out.println("none");
                    continue;
                }
                ByteBuffer bytes = MessageUtil.toByteBufferAccessor(response.data(), version).buffer();
                byte[] out = new byte[bytes.remaining()];
                bytes.get(out);
                System.out.println("=" + HexFormat.of().formatHex(out));
            } catch (RuntimeException error) {
                System.out.println("failed " + error);
            }
        }
    }
}
