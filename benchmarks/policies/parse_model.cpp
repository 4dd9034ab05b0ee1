// SPDX-License-Identifier: Apache-2.0
#include "parse_model.hpp"

#include "../../examples/common/parse.hpp"

namespace benchmarks::policies {

namespace {

/// "1000" or "768x3072": elements of a group.
std::size_t parse_shape(const std::string& flag, const std::string& given, const std::string& shape) {
    std::size_t numel = 1;
    std::string factor;
    for (const char c : shape + "x") {
        if (c != 'x') {
            factor += c;
            continue;
        }
        std::size_t extent = 0;
        try {
            extent = program::parse_count(flag, factor, 1);
        } catch (const program::InputError&) {
            throw program::bad_flag(flag, given, "a list with commas of element counts or shapes like 768x3072");
        }
        if (extent > most_elements / numel) { throw program::bad_flag(flag, given, "at most 2^44 elements"); }
        numel *= extent;
        factor.clear();
    }
    return numel;
}

void read_shapes(const std::string& flag, const std::string& given, Options& o) {
    for (const std::string& shape : program::split_list(given)) {
        o.groups.push_back({"groups." + std::to_string(o.groups.size()), parse_shape(flag, given, shape)});
    }
    o.model = "groups of " + given + " elements";
}

}  // namespace

void read_model(const program::Flags& flags, Options& o) {
    std::size_t layers = 4;
    std::size_t width = 256;
    std::size_t vocabulary = 4096;
    const auto count_into = [&](const char* name, std::size_t& target, std::size_t least, std::size_t most) {
        flags.use(name, [&](const std::string& flag, const std::string& given) {
            if (flags.is_given("--shapes")) {
                throw program::InputError("--shapes and " + flag + ": expected one of the two");
            }
            target = program::parse_count(flag, given, least, most);
        });
    };
    count_into("--layers", layers, 1, 1000);
    count_into("--width", width, 1, 1U << 17U);
    count_into("--vocabulary", vocabulary, 0, 1U << 22U);
    flags.use("--shapes", [&](const std::string& flag, const std::string& given) { read_shapes(flag, given, o); });
    if (o.groups.empty()) {
        if (vocabulary > 0) { o.groups.push_back({"embedding", vocabulary * width}); }
        for (std::size_t i = 0; i < layers; ++i) {
            o.groups.push_back({"layers." + std::to_string(i), 12 * width * width});
        }
        o.model = program::formatted("GPT of %zu layers, width %zu, vocabulary %zu", layers, width, vocabulary);
    }
    if (o.groups.size() > 4096 || o.numel() > most_elements) {
        throw program::InputError("the model has " + std::to_string(o.groups.size()) + " groups of " +
                                  std::to_string(o.numel()) +
                                  " elements in all: expected at most 4096 groups, 2^44 elements");
    }
}

}  // namespace benchmarks::policies
