import java.lang.reflect.Method;
import java.util.Map;
import java.util.TreeSet;

/**
 * What a release of Apache Kafka says of itself: the APIs that its brokers serve to clients, and the defaults of their
 * settings. Written for any release since 2.1, whose classes differ, so it looks for them by name.
 */
public class Release {
    public static void main(String[] arguments) throws Exception {
        apis();
        features();
        defaults();
    }

    /** api, key, name, lowest version, highest stable version, listeners. */
    private static void apis() throws Exception {
        Class<?> keys = Class.forName("org.apache.kafka.common.protocol.ApiKeys");
        for (Object api : keys.getEnumConstants()) {
            Object latest = call(api, "latestVersion", false);
            row("api", keys.getField("id").get(api), keys.getField("name").get(api), call(api, "oldestVersion"),
                latest == null ? call(api, "latestVersion") : latest, listeners(api));
        }
    }

    /** Empty for a release that has one kind of listener. */
    private static Object listeners(Object api) throws Exception {
        try {
            Object listeners = call(api.getClass().getField("messageType").get(api), "listeners");
            if (listeners != null) return listeners;
        } catch (NoSuchFieldException older) {
            return "";
        }
        try {
            return (boolean) api.getClass().getField("isEnabled").get(api) ? "" : "none";
        } catch (NoSuchFieldException older) {
            return "";
        }
    }

    /** feature, name, lowest level, highest level. Releases with ZooKeeper only have none. */
    private static void features() throws Exception {
        Class<?> features;
        try {
            features = Class.forName("org.apache.kafka.controller.QuorumFeatures");
        } catch (ClassNotFoundException older) {
            return;
        }
        for (Method method : features.getMethods())
            if (method.getName().matches("default(Supported)?FeatureMap")) {
                Object[] unstable = method.getParameterCount() == 0 ? new Object[0] : new Object[] {false};
                Map<?, ?> ranges = (Map<?, ?>) method.invoke(null, unstable);
                for (Object name : new TreeSet<Object>(ranges.keySet()))
                    row("feature", name, call(ranges.get(name), "min"), call(ranges.get(name), "max"));
            }
    }

    /** default, name, value. */
    private static void defaults() throws Exception {
        Map<?, ?> settings = (Map<?, ?>) call(definition(), "configKeys");
        for (Object name : new TreeSet<Object>(settings.keySet())) {
            Object setting = settings.get(name);
            if ((boolean) call(setting, "hasDefault"))
                row("default", name, setting.getClass().getField("defaultValue").get(setting));
        }
    }

    private static Object definition() throws Exception {
        try {
            return Class.forName("org.apache.kafka.server.config.AbstractKafkaConfig").getField("CONFIG_DEF").get(null);
        } catch (ReflectiveOperationException older) {
            Class<?> config = Class.forName("kafka.server.KafkaConfig$");
            Object module = config.getField("MODULE$").get(null);
            for (String name : new String[] {"configDef", "kafka$server$KafkaConfig$$configDef"})
                for (Method method : config.getDeclaredMethods())
                    if (method.getName().equals(name) && method.getParameterCount() == 0) {
                        method.setAccessible(true);
                        return method.invoke(module);
                    }
            throw older;
        }
    }

    private static Object call(Object target, String name, Object... arguments) throws Exception {
        for (Method method : target.getClass().getMethods())
            if (method.getName().equals(name) && method.getParameterCount() == arguments.length) {
                method.setAccessible(true);
                return method.invoke(target, arguments);
            }
        return null;
    }

    private static void row(Object... cells) {
        StringBuilder line = new StringBuilder();
        for (Object cell : cells) line.append(line.length() == 0 ? "" : "\t").append(cell);
        System.out.println(line.toString().replace("\n", "\\n"));
    }
}
