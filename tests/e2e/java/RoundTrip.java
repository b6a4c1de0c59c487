import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;

/** What a Java application does: every codec, a transaction with offsets over two topics, a group, the admin. */
public class RoundTrip {
    private static final Duration STEP = Duration.ofMillis(100);
    private static String server;

    public static void main(String[] arguments) throws Exception {
        server = arguments[0];
        String name = arguments[1];
        try (Admin admin = Admin.create(settings())) {
            admin.createTopics(List.of(new NewTopic(name, 2, (short) 1), new NewTopic(name + "-out", 1, (short) 1)))
                .all().get();
            send(name);
            transact(name);
            describe(admin, name);
        }
        System.out.println("done");
        Runtime.getRuntime().halt(0);
    }

    private static Properties settings(String... pairs) {
        Properties found = new Properties();
        found.put("bootstrap.servers", server);
        for (int at = 0; at < pairs.length; at += 2) {
            found.put(pairs[at], pairs[at + 1]);
        }
        for (String side : List.of("key", "value")) {
            found.put(side + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            found.put(side + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        return found;
    }

    /** 100 records with each codec, by producers with default settings, which are idempotent. */
    private static void send(String topic) throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            try (Producer<String, String> producer = new KafkaProducer<>(settings("compression.type", codec))) {
                for (int number = 0; number < 100; number++) {
                    producer.send(new ProducerRecord<>(topic, number % 2, null, codec + number, "value " + number));
                }
            }
        }
    }

    /** Copy all records to another topic, half of the batches aborted first. */
    private static void transact(String topic) {
        Properties reading = settings("group.id", topic + "-group", "auto.offset.reset", "earliest",
            "isolation.level", "read_committed", "enable.auto.commit", "false", "max.poll.records", "100");
        try (Consumer<String, String> consumer = new KafkaConsumer<>(reading);
             Producer<String, String> producer = new KafkaProducer<>(settings("transactional.id", topic + "-copier"))) {
            producer.initTransactions();
            consumer.subscribe(List.of(topic));
            int copied = 0;
            boolean aborts = true;
            while (copied < 500) {
                ConsumerRecords<String, String> records = consumer.poll(STEP);
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<String, String> one : records) {
                    producer.send(new ProducerRecord<>(topic + "-out", one.key(), one.value()));
                    TopicPartition where = new TopicPartition(one.topic(), one.partition());
                    offsets.put(where, new OffsetAndMetadata(one.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (aborts) {
                    producer.abortTransaction();
                    consumer.committed(consumer.assignment()).forEach((place, offset) ->
                        consumer.seek(place, offset == null ? 0 : offset.offset()));
                } else {
                    producer.commitTransaction();
                    copied += records.count();
                }
                aborts = !aborts;
            }
        }
        say("committed", count(topic + "-out", "read_committed"));
        say("uncommitted is more", count(topic + "-out", "read_uncommitted") > 500);
    }

    private static int count(String topic, String isolation) {
        try (Consumer<String, String> consumer = new KafkaConsumer<>(settings("isolation.level", isolation))) {
            TopicPartition where = new TopicPartition(topic, 0);
            consumer.assign(List.of(where));
            consumer.seekToBeginning(List.of(where));
            long end = consumer.endOffsets(List.of(where)).get(where);
            int found = 0;
            while (consumer.position(where) < end) {
                found += consumer.poll(STEP).count();
            }
            return found;
        }
    }

    private static void describe(Admin admin, String name) throws Exception {
        String group = name + "-group";
        String copier = name + "-copier";
        TopicPartition where = new TopicPartition(name, 0);
        say("nodes", admin.describeCluster().nodes().get().size());
        say("topics", admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().size());
        for (OffsetSpec spec : List.of(
                OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(), OffsetSpec.forTimestamp(1))) {
            say("offset", admin.listOffsets(Map.of(where, spec)).partitionResult(where).get().offset());
        }
        say("retention", retention(admin, name));
        RecordsToDelete first = RecordsToDelete.beforeOffset(7);
        say("low", admin.deleteRecords(Map.of(where, first)).lowWatermarks().get(where).get().lowWatermark());
        admin.createPartitions(Map.of(name, NewPartitions.increaseTo(3))).all().get();
        say("group", admin.describeConsumerGroups(List.of(group)).all().get().get(group).state());
        say("positions", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().size());
        say("transactions", admin.describeTransactions(List.of(copier)).all().get().get(copier).state());
        TopicPartition out = new TopicPartition(name + "-out", 0);
        say("producers", !admin.describeProducers(List.of(out)).all().get().isEmpty());
        say("disks", admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).size());
        admin.deleteConsumerGroups(List.of(group)).all().get();
        admin.deleteTopics(List.of(name, name + "-out")).all().get();
        say("deleted", !admin.listTopics().names().get().contains(name));
    }

    private static String retention(Admin admin, String name) throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, name);
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry("retention.ms", "12345"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(topic, List.of(set))).all().get();
        return admin.describeConfigs(List.of(topic)).all().get().get(topic).get("retention.ms").value();
    }

    private static void say(String what, Object value) {
        System.out.println(what + " " + value);
    }
}
