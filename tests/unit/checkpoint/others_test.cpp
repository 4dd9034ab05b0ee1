// SPDX-License-Identifier: Apache-2.0
// Files of others: several forms of a model, names that stand for another, tensors that are one parameter or several.
#include <shardkit/checkpoint.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/reduce.hpp>

#include "temporary_folder.hpp"
#include "unit/thrown_message.hpp"
#include "written_tensors.hpp"

namespace others_test {

namespace {

namespace sk = shardkit;
namespace fs = std::filesystem;
using temporary_folder::contents;
using temporary_folder::Folder;
using written_tensors::Tensor;
using written_tensors::write_file;

struct Embedding : sk::Param<"embedding", float, 4, 2> {};
struct Head : sk::Alias<"head", Embedding> {};
struct Bias : sk::Param<"bias", float, 3> {};
using Tied = sk::Params<Embedding, Head, Bias>;

std::vector<float> counted(std::size_t count, float from = 1) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), from);
    return values;
}
const Tensor bias{"m.bias", {3}, {7, 8, 9}};
Tensor embedding(std::string name, float from = 1) { return {std::move(name), {4, 2}, counted(8, from)}; }

/// What of a group is loaded by load_model on two ranks: its first element and last; or what was thrown.
std::string loaded(const std::string& path, const sk::checkpoint::LoadOptions& options = {}) {
    std::string said;
    const std::string thrown = thrown_message<sk::FileError>([&] {
        sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
            sk::Sharded<Tied, sk::FullShard> layer(rank, "m");
            layer.initialize([](auto, auto, auto) { return -1.0; });
            const sk::Model model{layer};
            sk::checkpoint::load_model(rank, path, model, options);
            const auto window = layer.unshard();
            if (rank.rank() == 0) {
                for (const float value : window[Embedding{}]) {
                    said += std::to_string(static_cast<int>(value)) + " ";
                }
                for (const float value : window[Bias{}]) { said += std::to_string(static_cast<int>(value)) + " "; }
            }
        });
    });
    return thrown == "nothing was thrown" ? said : thrown;
}
const std::string as_written = "1 2 3 4 5 6 7 8 7 8 9 ";

void write_text(const std::string& path, std::string_view text) {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("a parameter is found by its own name, by an alias', by what the metadata say, and by both where equal") {
    const Folder folder;
    const std::string file = folder.file("model.safetensors");
    for (const bool subset : {false, true}) {
        CAPTURE(subset);
        const sk::checkpoint::LoadOptions options{.subset = subset};
        write_file(file, {embedding("m.embedding"), bias});
        CHECK(loaded(file, options) == as_written);
        write_file(file, {bias, embedding("m.head")});
        CHECK(loaded(file, options) == as_written);
        // A name that the model does not know, which the file says is one that it does.
        write_file(file, {bias, embedding("other.weight")}, R"({"m.embedding":"other.weight"})");
        CHECK(loaded(file, options) == as_written);
        write_file(file, {embedding("m.embedding"), bias, embedding("m.head")});
        CHECK(loaded(file, options) == as_written);
        write_file(file, {embedding("m.embedding"), bias, embedding("m.head", 2)});
        const std::string differ = loaded(file, options);
        CHECK(
            has(differ, "tensors 'm.embedding' and 'm.head' are one parameter of the state, and have other values"));
        write_file(file, {embedding("m.embedding"), bias, {"m.head", {2, 4}, counted(8)}});
        CHECK(has(loaded(file, options), "'m.head' are one parameter of the state, and have other types or shapes"));
    }
    // Metadata that lead nowhere are none.
    write_file(file, {bias}, R"({"m.embedding":"other.weight"})");
    CHECK(has(loaded(file), "lack 'm.embedding'"));
    // Names of the user's: an alias that they do not know is asked for by no name.
    const sk::checkpoint::TensorNames names = [](std::string_view, const sk::ParameterRecord& parameter) {
        if (parameter.name == "head") { throw std::logic_error("no name"); }
        return sk::checkpoint::stored(parameter.name == "bias" ? "b" : "wte", parameter.shape);
    };
    write_file(file, {embedding("wte"), {"b", {3}, {7, 8, 9}}});
    CHECK(loaded(file, {.names = names}) == as_written);
    const sk::checkpoint::TensorNames both = [](std::string_view, const sk::ParameterRecord& parameter) {
        return sk::checkpoint::stored(parameter.name == "head" ? "lm_head" : std::string(parameter.name),
                                      parameter.shape);
    };
    write_file(file, {embedding("lm_head"), {"bias", {3}, {7, 8, 9}}});
    CHECK(loaded(file, {.names = both}) == as_written);
}

TEST_CASE("a model whose alias became a parameter of its own takes what it stood for from what was saved") {
    struct Own : sk::Param<"head", float, 4, 2> {};
    const Folder folder;
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        sk::Sharded<Tied, sk::NoShard> tied(rank, "m");
        tied.initialize([](auto, auto, std::uint64_t i) { return static_cast<double>(i); });
        const sk::Model model{tied};
        sk::checkpoint::save(rank, folder.file("run"), 1, sk::checkpoint::State{model});
        sk::Sharded<sk::Params<Embedding, Own, Bias>, sk::NoShard> untied(rank, "m");
        const sk::Model larger{untied};
        sk::checkpoint::load(rank, folder.file("run/step-00000001"), sk::checkpoint::State{larger});
        const auto window = untied.unshard();
        CHECK(window[Own{}][7] == 7);
        CHECK(window[Embedding{}][7] == 7);
    });
}

TEST_CASE("a save proves once that a load finds what it needs, and anew where a load would look for something else") {
    const Folder folder;
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        sk::Sharded<Tied, sk::NoShard> tied(rank, "m");
        tied.initialize([](auto, auto, auto) { return 1.0; });
        std::size_t asked = 0;
        // The same files, whatever `head` is.
        const auto names = [&](std::string head) -> sk::checkpoint::TensorNames {
            return [&asked, head](std::string_view, const sk::ParameterRecord& parameter) {
                ++asked;
                return sk::checkpoint::stored(parameter.name == "head" ? head : std::string(parameter.name),
                                              parameter.shape);
            };
        };
        const auto asked_by_save = [&](std::uint64_t step, const std::string& head, std::vector<std::uint8_t> bytes) {
            const std::size_t before = asked;
            sk::checkpoint::State state{sk::Model{tied}};
            state.blob("sampler", bytes);
            sk::checkpoint::save(rank, folder.file("run"), step, state, {.names = names(head)});
            return asked - before;
        };
        const std::size_t first = asked_by_save(1, "lm_head", {1});
        CHECK(asked_by_save(2, "lm_head", {2, 3}) < first);
        for (int i = 0; i < 2; ++i) {
            const std::string refused = thrown_message<sk::FileError>([&] { asked_by_save(3, "bias", {1}); });
            CHECK(has(refused,
                      "'embedding' and 'bias' are one parameter of the state, and have other types or shapes"));
        }
        CHECK_FALSE(fs::exists(folder.file("run/step-00000003")));
        CHECK(asked_by_save(3, "lm_head", {1}) < first);
    });
}

TEST_CASE("no metadata may be said as null") {
    const Folder folder;
    const std::string file = folder.file("model.safetensors");
    write_file(file, {embedding("m.embedding"), bias}, "null");
    CHECK(loaded(file) == as_written);
    const sk::safetensors::File opened(file);
    CHECK(opened.metadata().empty());
    for (const char* other : {"nul", "nulls", "0", "[]", "\"null\"", "NULL"}) {
        CAPTURE(other);
        write_file(file, {embedding("m.embedding"), bias}, other);
        CHECK(has(loaded(file), "not a valid safetensors file"));
    }
}

TEST_CASE(
    "an index is a path too, its pieces may lie in folders below, and it decides which of two tensors is meant") {
    const Folder folder;
    const std::string index = folder.file("model.safetensors.index.json");
    write_file(folder.file("a/one.safetensors"), {embedding("m.embedding", 50), bias});
    write_file(folder.file("b/two.safetensors"), {embedding("m.embedding")});
    write_text(index, R"({"metadata":{"total_size":44},"weight_map":{"m.bias":"a/one.safetensors",)"
                      R"("m.embedding":"b/two.safetensors"}})");
    CHECK(loaded(index) == as_written);
    CHECK(loaded(folder.path()) == as_written);
    write_text(index, R"({"weight_map":{"m.bias":"a/one.safetensors","m.embedding":"a/one.safetensors"}})");
    CHECK(loaded(index) == "50 51 52 53 54 55 56 57 7 8 9 ");
    write_text(index, R"({"weight_map":{"m.bias":"b/two.safetensors","m.embedding":"b/two.safetensors"}})");
    CHECK(has(loaded(index), "lacks 'm.bias', which the index says it has"));
    for (const char* outside : {"../x.safetensors", "/x.safetensors", "a/../../x.safetensors", ""}) {
        CAPTURE(outside);
        write_text(index, R"({"weight_map":{"m.bias":")" + std::string(outside) + R"("}})");
        CHECK(has(loaded(index), "'m.bias' in a file outside of the folder"));
    }
    write_text(index, R"({"metadata":{}})");
    CHECK(has(loaded(index), "expected a weight_map"));
    // Without an index that decides, two tensors of one name are an error.
    write_file(folder.file("c/model-00001-of-00002.safetensors"), {embedding("m.embedding")});
    write_file(folder.file("c/model-00002-of-00002.safetensors"), {embedding("m.embedding"), bias});
    CHECK(has(loaded(folder.file("c")), "tensor 'm.embedding' is in another file too"));
    // A file reader is no reader of an index, and says so.
    const std::string single = thrown_message<sk::FileError>([&] { const sk::safetensors::File file(index); });
    CHECK(has(single, "no safetensors file: JSON, as an index of several is"));
}

TEST_CASE(
    "files of another stem, numbered files without an index, and folders in which it is not clear what is meant") {
    const Folder folder;
    const auto one = [&](const std::string& name) {
        write_file(folder.file(name), {embedding("m.embedding"), bias});
    };
    const auto pieces = [&](const std::string& stem) {
        write_file(folder.file(stem + "-00001-of-00002.safetensors"), {embedding("m.embedding")});
        write_file(folder.file(stem + "-00002-of-00002.safetensors"), {bias});
    };
    one("a/diffusion_pytorch_model.safetensors");
    CHECK(loaded(folder.file("a")) == as_written);
    // What libraries call it is meant, whatever lies beside it.
    one("a/model.safetensors");
    write_file(folder.file("a/adapter.safetensors"), {});
    CHECK(loaded(folder.file("a")) == as_written);
    fs::remove(folder.file("a/model.safetensors"));
    const std::string several = loaded(folder.file("a"));
    CHECK(has(several,
              "without model.safetensors or model.safetensors.index.json, and with 'adapter', "
              "'diffusion_pytorch_model'"));
    fs::create_directories(folder.file("empty"));
    CHECK(has(loaded(folder.file("empty")), "and with nothing"));

    pieces("b/consolidated");
    CHECK(loaded(folder.file("b")) == as_written);
    write_text(folder.file("b/consolidated.safetensors.index.json"),
               R"({"weight_map":{"m.bias":"consolidated-00002-of-00002.safetensors",)"
               R"("m.embedding":"consolidated-00001-of-00002.safetensors"}})");
    CHECK(loaded(folder.file("b")) == as_written);
    pieces("c/model");
    CHECK(loaded(folder.file("c")) == as_written);
    write_file(folder.file("c/model-00003-of-00002.safetensors"), {});
    CHECK(has(loaded(folder.file("c")), "'model-00003-of-00002.safetensors' is one too many"));
    fs::remove(folder.file("c/model-00003-of-00002.safetensors"));
    fs::remove(folder.file("c/model-00001-of-00002.safetensors"));
    CHECK(has(loaded(folder.file("c")), "'model-00001-of-00002.safetensors' is not there"));

    // Two forms of one model: others take one or the other.
    pieces("d/model");
    write_file(folder.file("d/model.safetensors"), {embedding("m.embedding", 50), bias});
    const std::string beside = loaded(folder.file("d"));
    CHECK(has(beside, "several forms"));
    CHECK(has(beside, "'model.safetensors', 'model-00001-of-00002.safetensors'"));
    write_text(folder.file("d/model.safetensors.index.json"),
               R"({"weight_map":{"m.bias":"model-00002-of-00002.safetensors",)"
               R"("m.embedding":"model-00001-of-00002.safetensors"}})");
    CHECK(has(loaded(folder.file("d")), "'model.safetensors', 'model.safetensors.index.json'"));
    CHECK(loaded(folder.file("d/model.safetensors.index.json")) == as_written);
    CHECK(loaded(folder.file("d/model.safetensors")) == "50 51 52 53 54 55 56 57 7 8 9 ");
    pieces("e/model");
    write_file(folder.file("e/model-00001-of-00003.safetensors"), {bias});
    CHECK(has(loaded(folder.file("e")), "several forms"));
}

TEST_CASE("a state's file, or that of scalars, is no model's, and no other state's") {
    const Folder folder;
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        sk::Sharded<Tied, sk::NoShard> layer(rank, "m");
        sk::Model model{layer};
        sk::SGD optimizer{model, {.rule = sk::Momentum::classical, .momentum = 0.9}};
        sk::checkpoint::save(rank, folder.file("run"), 1, sk::checkpoint::State{model, optimizer});
    });
    const std::string step = folder.file("run/step-00000001/");
    const std::string state = loaded(step + "state/momentum_buffer.safetensors");
    CHECK(has(state, "holds 'state/momentum_buffer' of a checkpoint, expected 'model'"));
    CHECK(has(loaded(step + "state/scalars.safetensors", {.subset = true}), "holds 'state/scalars' of a checkpoint"));
    fs::create_directories(folder.file("copy"));
    fs::copy_file(step + "state/momentum_buffer.safetensors", folder.file("copy/model.safetensors"));
    CHECK(has(loaded(folder.file("copy")), "holds 'state/momentum_buffer' of a checkpoint"));
    CHECK(loaded(step) == "0 0 0 0 0 0 0 0 0 0 0 ");
}

}  // namespace others_test
