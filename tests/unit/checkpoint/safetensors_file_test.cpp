// SPDX-License-Identifier: Apache-2.0
#include <shardkit/checkpoint/safetensors_file.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>

#include "test_size.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace safetensors_file_test {

namespace {

const std::string golden = std::string(SHARDKIT_GOLDEN_DIR) + "/model.safetensors";

/// A file that is gone when the test ends.
class TemporaryFile {
  public:
    explicit TemporaryFile(std::string_view bytes)
        : path_(std::filesystem::temp_directory_path() /
                ("shardkit_safetensors_" + std::to_string(getpid()) + "_" + std::to_string(made++))) {
        rewrite(bytes);
    }
    ~TemporaryFile() { std::filesystem::remove(path_); }
    TemporaryFile(TemporaryFile&&) = delete;
    TemporaryFile& operator=(TemporaryFile&&) = delete;

    void rewrite(std::string_view bytes) const {
        std::ofstream file(path_, std::ios::binary);
        file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    std::string path() const { return path_.string(); }

  private:
    static inline int made = 0;
    std::filesystem::path path_;
};

std::string file_of(std::uint64_t length, std::string_view header, std::string_view data) {
    std::string bytes(sizeof length, '\0');
    std::memcpy(bytes.data(), &length, sizeof length);
    return bytes + std::string(header) + std::string(data);
}
std::string file_of(std::string_view header, std::string_view data) { return file_of(header.size(), header, data); }

/// What opening a file of these bytes says.
std::string refusal(std::string_view bytes) {
    const TemporaryFile file(bytes);
    try {
        const sk::safetensors::File opened(file.path());
    } catch (const sk::FileError& error) {
        CHECK(error.path() == file.path());
        CHECK(std::string_view(error.where().file).ends_with("safetensors_file_test.cpp"));
        return error.what();
    }
    return "opened";
}
std::string refusal_of_header(std::string_view header, std::size_t data_bytes) {
    return refusal(file_of(header, std::string(data_bytes, 'x')));
}

std::string golden_bytes() {
    std::ifstream file(golden, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Opens a file of these bytes and reads all that is numbers: it succeeds, or is refused by the library's own errors.
std::size_t opened_tensors(const TemporaryFile& file) {
    try {
        const sk::safetensors::File opened(file.path());
        for (const auto& tensor : opened.tensors()) {
            CHECK(opened.find(tensor.name) == &tensor);
            try {
                const auto values = opened.read<float>(tensor.name);
                CHECK(values.size() == tensor.numel());
            } catch (const std::invalid_argument&) {}
        }
        return opened.tensors().size() + 1;
    } catch (const sk::FileError&) { return 0; }
}

struct Weight : sk::Param<"weight", float, 3, 4> {};
struct Half : sk::Param<"half", float, 12> {};

}  // namespace

TEST_CASE("safetensors: a file of the format's own library has its tensors, texts and values") {
    const sk::safetensors::File file(golden);
    std::string listed;
    for (const auto& tensor : file.tensors()) {
        listed += tensor.name + " " + std::string(name(tensor.type)) + " " + tensor.shape.describe() + "; ";
    }
    CHECK(listed ==
          "steps U64 [2]; blocks.0.wide F64 [2, 3, 2]; blocks.0.weight F32 [3, 4]; empty F32 [0, 5]; scalar F32 []; "
          "brain \u03b2\"\\ BF16 [4, 3]; half F16 [12]; mask BOOL [3]; ");
    REQUIRE(file.metadata().size() == 2);
    CHECK(file.metadata()[0] == std::pair<std::string, std::string>("format", "pt"));
    CHECK(file.metadata()[1] == std::pair<std::string, std::string>("note", "\u00fc, \"quoted\"\n"));

    const auto weight = file.read<float>("blocks.0.weight");
    const auto wide = file.read<double>("blocks.0.wide");
    const auto narrowed = file.read<float>("blocks.0.wide");
    const auto half = file.read<double>("half");
    const auto same_half = file.read<sk::fp16>("half");
    const auto brain = file.read<float>("brain \u03b2\"\\");
    const auto same_brain = file.read<sk::bf16>("brain \u03b2\"\\");
    const auto rounded = file.read<sk::bf16>("blocks.0.wide");
    for (std::size_t i = 0; i < 12; ++i) {
        const auto n = static_cast<double>(i);
        CHECK(static_cast<double>(weight[i]) == n * 0.25 - 1);
        CHECK(wide[i] == 1 / (n + 3));
        CHECK(narrowed[i] == static_cast<float>(1 / (n + 3)));
        CHECK(half[i] == n * 0.5 - 3);
        CHECK(static_cast<float>(same_half[i]) == static_cast<float>(n * 0.5 - 3));
        CHECK(static_cast<double>(brain[i]) == n * 2 - 7);
        CHECK(static_cast<float>(same_brain[i]) == static_cast<float>(n * 2 - 7));
        CHECK(rounded[i].bits == sk::bf16(static_cast<float>(1 / (n + 3))).bits);
    }
    CHECK(file.read<float>("empty").empty());
    CHECK(std::signbit(file.read<float>("scalar")[0]));
}

TEST_CASE("safetensors: a part of a tensor, in every way that a rank may ask for one") {
    const sk::safetensors::File file(golden);
    for (std::size_t first = 0; first <= 12; ++first) {
        for (std::size_t count = 0; first + count <= 12; ++count) {
            std::vector<float> exact(count, -99);
            std::vector<double> converted(count, -99);
            file.read("blocks.0.weight", std::span(exact), first);
            file.read("half", std::span(converted), first);
            for (std::size_t i = 0; i < count; ++i) {
                CHECK(static_cast<double>(exact[i]) == static_cast<double>(first + i) * 0.25 - 1);
                CHECK(converted[i] == static_cast<double>(first + i) * 0.5 - 3);
            }
        }
    }
    std::vector<float> values(4);
    CHECK_THROWS_WITH_AS(file.read("half", std::span(values), 9),
                         doctest::Contains("read of elements 9 to 9 + 4, it has 12"), std::invalid_argument);
    CHECK_THROWS_AS(file.read("half", std::span(values), std::numeric_limits<std::size_t>::max() - 1),
                    std::invalid_argument);
    CHECK(file.read<float>("half", sk::TensorShape{1, {12}}) == file.read<float>("half"));
    CHECK_THROWS_WITH_AS(file.read<float>("blocks.0.weight", sk::TensorShape{2, {4, 3}}),
                         doctest::Contains("tensor 'blocks.0.weight' has shape [3, 4], expected [4, 3]"),
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(file.read("Half", std::span(values)), doctest::Contains("has no tensor 'Half' among its 8"),
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(file.read("steps", std::span(values).first(2)),
                         doctest::Contains("elements of type U64, expected F64, F32, BF16 or F16"),
                         std::invalid_argument);
}

TEST_CASE("safetensors: conversions go through a buffer, of tensors longer than it") {
    constexpr std::size_t numel = 3 * 32768 + 5;
    std::vector<float> values(numel);
    for (std::size_t i = 0; i < numel; ++i) { values[i] = std::ldexp(static_cast<float>(i) - 40000.5F, -9); }
    std::string data(numel * sizeof(float), '\0');
    std::memcpy(data.data(), values.data(), data.size());
    const TemporaryFile temporary(file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[" + std::to_string(numel) +
                                              "],\"data_offsets\":[0," + std::to_string(data.size()) + "]}}",
                                          data));
    const sk::safetensors::File file(temporary.path());
    CHECK(file.read<float>("a") == values);
    const auto wide = file.read<double>("a");
    const auto brain = file.read<sk::bf16>("a");
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < numel; ++i) {
        wrong += wide[i] != static_cast<double>(values[i]);
        wrong += brain[i].bits != sk::bf16(values[i]).bits;
    }
    CHECK(wrong == 0);

    // Cut while it is open: an error, and no values that nobody wrote.
    std::filesystem::resize_file(temporary.path(), 4000);
    CHECK_THROWS_WITH_AS(file.read<double>("a"), doctest::Contains("ends at byte 4000, but had"), sk::FileError);
}

TEST_CASE("safetensors: every rank loads what a file has, and holds its shard of it") {
    const sk::safetensors::File file(golden);
    sk::threads::run(sk::DeviceMesh<3>{}, [&](auto& rank) {
        sk::Sharded<sk::Params<Weight, Half>, sk::FullShard> layer{rank, "blocks.0"};
        layer.load(Weight{}, file.read<float>("blocks.0.weight"));
        layer.load(Half{}, file.read<float>("half"));
        const auto window = layer.unshard();
        for (std::size_t i = 0; i < 12; ++i) {
            CHECK(window[Weight{}][i] == static_cast<float>(i) * 0.25F - 1);
            CHECK(window[Half{}][i] == static_cast<float>(i) * 0.5F - 3);
        }
    });
}

TEST_CASE("safetensors: what is no such file is refused by name") {
    CHECK(has(refusal(""), "0 bytes, expected at least 8"));
    CHECK(has(refusal("1234567"), "7 bytes, expected at least 8"));
    CHECK(has(refusal(file_of(3, "{}", "")), "a header of 3 bytes, expected at most 2"));
    CHECK(has(refusal(file_of(~std::uint64_t{0}, "{}", "")), "a header of 18446744073709551615 bytes"));
    CHECK(has(refusal(file_of(0, "", "")), "byte 0 of its header: expected '{' as the first byte"));
    CHECK(refusal(file_of("{}", "")) == "opened");
    CHECK(refusal(file_of("{}    ", "")) == "opened");
    CHECK(has(refusal(file_of("{}", "x")), "the tensors end at byte 0 behind the header, the file at 1"));

    CHECK_THROWS_WITH_AS(sk::safetensors::File("/no/such/file"),
                         doctest::Contains("'/no/such/file': cannot be opened: "), sk::FileError);
    CHECK_THROWS_WITH_AS(sk::safetensors::File("/"), doctest::Contains("'/': is a folder"), sk::FileError);
    const TemporaryFile pipe("");
    std::filesystem::remove(pipe.path());
    REQUIRE(mkfifo(pipe.path().c_str(), 0600) == 0);
    CHECK_THROWS_WITH_AS(sk::safetensors::File(pipe.path()), doctest::Contains("is no regular file"), sk::FileError);

    // 100,000,001 bytes that the file has: sparse, none of them is read.
    const TemporaryFile large(file_of(100'000'001, "{", ""));
    std::filesystem::resize_file(large.path(), 100'000'009);
    CHECK_THROWS_WITH_AS(sk::safetensors::File(large.path()),
                         doctest::Contains("a header of 100000001 bytes, expected at most 100000000"), sk::FileError);
}

TEST_CASE("safetensors: every rule of the header is held against it, by name") {
    const auto one = [](std::string_view shape, std::string_view offsets) {
        return "{\"a\":{\"dtype\":\"F32\",\"shape\":" + std::string(shape) +
               ",\"data_offsets\":" + std::string(offsets) + "}}";
    };
    CHECK(refusal_of_header(one("[1]", "[0,4]"), 4) == "opened");
    const struct {
        std::string header;
        std::size_t data;
        std::string_view expected;
    } rules[] = {
        {one("[2]", "[0,4]"), 4, "'a' F32 [2] lies in bytes 0 to 4, expected 8 bytes"},
        {one("[1]", "[4,0]"), 4, "'a' F32 [1] begins at byte 4, behind what ends at 0"},
        {one("[1]", "[0,4]"), 8, "the tensors end at byte 4 behind the header, the file at 8"},
        {one("[1]", "[0,4]"), 3, "the tensors end at byte 4 behind the header, the file at 3"},
        {one("[1]", "[0]"), 4, "'a' lacks data_offsets of two numbers"},
        {one("[1]", "[0,4,4]"), 4, "'a' lacks data_offsets of two numbers"},
        {one("[4294967296,4294967296]", "[0,0]"), 0, "expected whole bytes, fewer than 2^64"},
        {one("[4611686018427387904]", "[0,0]"), 0, "expected whole bytes, fewer than 2^64"},
        {one("[18446744073709551616]", "[0,0]"), 0, "a number of 2^64 or more"},
        {one("[99999999999999999999]", "[0,0]"), 0, "a number of 2^64 or more"},
        {one("[-1]", "[0,4]"), 4, "byte 29 of its header: expected a whole number from 0"},
        {one("[01]", "[0,4]"), 4, "expected a whole number from 0"},
        {one("[1.0]", "[0,4]"), 4, "expected a whole number from 0"},
        {one("[1e0]", "[0,4]"), 4, "expected a whole number from 0"},
        {one("[\"1\"]", "[0,4]"), 4, "expected a whole number from 0"},
        {one("[1,]", "[0,4]"), 4, "expected a whole number from 0"},
        {one("[1 1]", "[0,4]"), 4, "expected ','"},
        {one("[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "'a' has more than 8 extents"},
        {one("null", "[0,4]"), 4, "expected '['"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, "expected whole bytes"},
        {"{\"a\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no element type is called 'f32'"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "'a' lacks shape"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "'a' lacks dtype"},
        {"{\"a\":{}}", 0, "'a' lacks dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
         "'a' has two dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"shape\":[],\"data_offsets\":[0,4]}}", 4, "'a' has two shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"scale\":2}}", 4, "'a' has a 'scale'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, "two tensors are called 'a'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"\\u0061\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, "two tensors are called 'a'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, "'b' F32 [1] begins at byte 4, within what ends at 8"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
         12, "'b' F32 [1] begins at byte 8, behind what ends at 4"},
        {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "the metadata have 'k' twice"},
        {"{\"__metadata__\":{\"k\":1}}", 0, "byte 21 of its header: expected '\"'"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "two __metadata__"},
        {"{\"__metadata__\":nul}", 0, "expected '{'"},
        {" {}", 0, "expected '{' as the first byte"},
        {"{", 0, "expected '\"', but the text ends"},
        {"{\"a", 0, "the text ends within a string"},
        {"{}x", 0, "expected nothing behind the last brace but spaces"},
        {"{}\0", 0, "opened"},
        {"{,}", 0, "expected '\"'"},
        {"{\"a\" {}}", 0, "expected ':'"},
        {"{\"\n\":{}}", 0, "a control character in a string"},
        {"{\"\\x\":{}}", 0, "an escape that JSON does not have"},
        {"{\"\\u12g4\":{}}", 0, "expected a hexadecimal digit"},
        {"{\"\\ud83d\":{}}", 0, "half of a surrogate pair"},
        {"{\"\\ud83d\\u0041\":{}}", 0, "half of a surrogate pair"},
        {"{\"\\ude00\":{}}", 0, "half of a surrogate pair"},
        {"{\"\x80\":{}}", 0, "invalid UTF-8"},
        {"{\"\xc0\xaf\":{}}", 0, "invalid UTF-8"},
        {"{\"\xe0\x80\xaf\":{}}", 0, "invalid UTF-8"},
        {"{\"\xed\xa0\x80\":{}}", 0, "invalid UTF-8"},
        {"{\"\xf4\x90\x80\x80\":{}}", 0, "invalid UTF-8"},
        {"{\"\xf8\x88\x80\x80\x80\":{}}", 0, "invalid UTF-8"},
        {"{\"\xc3\":{}}", 0, "invalid UTF-8"},
    };
    for (const auto& rule : rules) {
        CAPTURE(rule.header);
        const std::string said = refusal_of_header(rule.header, rule.data);
        CHECK_MESSAGE(has(said, rule.expected), said);
    }
    // Nothing in a text decides how deep the reader calls.
    CHECK(has(refusal_of_header("{\"a\":" + std::string(1'000'000, '['), 0), "expected '{'"));
    CHECK(has(refusal_of_header("{\"a\":{\"shape\":" + std::string(1'000'000, '['), 0), "expected a whole number"));
    // A name that would take a terminal over, or fill it, is shown harmless.
    const std::string said = refusal_of_header("{\"\\u001b[2J" + std::string(100'000, 'n') + "\":{}}", 0);
    CHECK(has(said, "'?[2Jnnn"));
    CHECK(said.size() < 600);
}

TEST_CASE("safetensors: names keep every character that JSON can write") {
    const TemporaryFile temporary(
        file_of("{\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20ac\\ud83d\\ude00\\u0000\xf0\x9f\x98\x80\":"
                "{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
                "x"));
    const sk::safetensors::File file(temporary.path());
    REQUIRE(file.tensors().size() == 1);
    using namespace std::string_view_literals;
    CHECK(file.tensors()[0].name == "\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\0\xf0\x9f\x98\x80"sv);
}

TEST_CASE("safetensors: whatever the bytes, a file is opened or refused") {
    const std::string good = golden_bytes();
    REQUIRE(good.size() > 500);
    const TemporaryFile file(good);
    CHECK(opened_tensors(file) == 9);
    std::size_t opened = 0;
    std::size_t refused = 0;
    const auto check = [&](const std::string& bytes) {
        file.rewrite(bytes);
        (opened_tensors(file) > 0 ? opened : refused) += 1;
    };
    for (std::size_t length = 0; length < good.size(); length += test_size::reduced() ? 7U : 1U) {
        check(good.substr(0, length));
    }
    CHECK(opened == 0);  // no cut file is a file
    check(good + "x");
    CHECK(opened == 0);
    for (std::size_t at = 0; at < good.size(); at += test_size::reduced() ? 5U : 1U) {
        for (const int flip : {1, 2, 4, 32, 128}) {
            std::string changed = good;
            changed[at] = static_cast<char>(changed[at] ^ flip);
            check(changed);
        }
    }
    std::mt19937 random(5);
    for (int round = 0; round < (test_size::reduced() ? 500 : 5000); ++round) {
        std::string changed = good;
        for (int edit = 0; edit < 3; ++edit) {
            const std::size_t a = random() % changed.size();
            const std::size_t length = random() % 12;
            switch (random() % 3) {
                case 0:
                    changed.erase(a, length);
                    break;
                case 1:
                    changed.insert(a, changed.substr(random() % changed.size(), length));
                    break;
                default:
                    changed.replace(a, 1, 1, "{}[]\",:0123456789\\ue"[random() % 20]);
            }
            if (changed.empty()) { changed = "x"; }
        }
        check(changed);
    }
    CHECK(opened > 0);
    CHECK(refused > opened);
}

}  // namespace safetensors_file_test
