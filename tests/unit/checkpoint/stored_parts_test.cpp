// SPDX-License-Identifier: Apache-2.0
// One parameter in several tensors of a file, tensors with fewer rows than a parameter, forms that cannot be, and a
// model's single file.
#include <shardkit/checkpoint.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/reduce.hpp>

#include "renamed_in_step.hpp"
#include "temporary_folder.hpp"
#include "unit/thrown_message.hpp"
#include "written_tensors.hpp"

namespace stored_parts_test {

namespace {

namespace sk = shardkit;
namespace fs = std::filesystem;
using temporary_folder::contents;
using temporary_folder::Folder;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic>;

constexpr std::size_t heads = 2;
constexpr std::size_t width = 6;
/// Rows are queries, keys and values, one behind the other.
struct Fused : sk::Param<"fused", float, 4 + 2 + 2, width>, sk::tp::Split<0> {};
/// Rows are [heads][query | key | value], as GPT-NeoX has them.
struct Mixed : sk::Param<"mixed", float, heads * 3, width> {};
/// [in, out], of which the outputs are a gate and what it gates: as Conv1D holds them.
struct Gates : sk::Param<"gates", float, width, 2 * 5> {};
using Block = sk::Params<Fused, Mixed, Gates>;

sk::checkpoint::StoredAs apart(std::string_view path, const sk::ParameterRecord& parameter) {
    const std::string before = std::string(path) + ".";
    if (parameter.name == Fused::name) {
        return sk::checkpoint::stored_rows({{before + "q", 4}, {before + "k", 2}, {before + "v", 2}},
                                           parameter.shape);
    }
    if (parameter.name == Mixed::name) {
        return {"",
                {},
                {heads, 3, width},
                {1, 0, 2},
                {{"mq", {heads, width}}, {"mk", {heads, width}}, {"mv", {heads, width}}}};
    }
    return {"", {}, {width, 2, 5}, {1, 2, 0}, {{"gate", {5, width}}, {"up", {5, width}}}};
}

template <class F>
void on(const Mesh& mesh, const sk::DynamicPolicy& policy, const F& f) {
    sk::threads::run(mesh, [&](auto& rank) {
        using Layer = sk::Sharded<Block, sk::DynamicPolicy>;
        Layer layer(rank, "m", {}, {policy});
        f(rank, layer);
    });
}
double value(std::string_view name, std::uint64_t i) { return static_cast<double>(100 * name.size() + i); }

}  // namespace

TEST_CASE("one parameter is several tensors of a file and back, on every mesh and policy") {
    const Folder folder;
    std::size_t number = 0;
    std::map<std::string, std::string> first;
    const std::vector<std::pair<Mesh, sk::DynamicPolicy>> places{
        {Mesh(1, 1), sk::DynamicPolicy(sk::NoShard{})},
        {Mesh(3, 1), sk::DynamicPolicy(sk::FullShard{})},
        {Mesh(1, 2), sk::DynamicPolicy(sk::ShardGradOp{})},
        {Mesh(2, 2), sk::DynamicPolicy(sk::FullShard{})},
    };
    for (const auto& place : places) {
        CAPTURE(number);
        const std::string run = folder.file(std::to_string(number++));
        on(place.first, place.second, [&](auto& rank, auto& layer) {
            sk::Model model{layer};
            sk::SGD optimizer{model, {.learning_rate = 0, .rule = sk::Momentum::classical, .momentum = 0.5}};
            const sk::checkpoint::State state{model, optimizer};
            layer.initialize([](auto, auto name, std::uint64_t i) { return value(name, i); });
            sk::checkpoint::save(rank, run, 1, state, {.names = apart});
            layer.initialize([](auto, auto, std::uint64_t) { return -1.0; });
            const auto report = sk::checkpoint::load(rank, run + "/step-00000001", state, {.names = apart});
            if (report.tensors != 16) { throw std::logic_error("not every tensor was read"); }
            for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
                std::vector<float> whole(layer.parameters()[p].shape.numel());
                layer.read_full(p, whole);
                for (std::size_t i = 0; i < whole.size(); ++i) {
                    if (whole[i] != static_cast<float>(value(layer.parameters()[p].name, i))) {
                        throw std::logic_error("another value");
                    }
                }
            }
        });
        if (number == 1) { first = contents(run); }
        CHECK(contents(run) == first);
    }
    const sk::safetensors::File file(folder.file("0/step-00000001/model.safetensors"));
    CHECK(file.tensors().size() == 8);
    const auto key = file.read<float>("m.k", sk::TensorShape{2, {2, width}});
    CHECK(key[0] == value("fused", 4 * width));
    const auto mixed = file.read<float>("mv", sk::TensorShape{2, {heads, width}});
    CHECK(mixed[width + 1] == value("mixed", (1 * 3 + 2) * width + 1));
    const auto up = file.read<float>("up", sk::TensorShape{2, {5, width}});
    CHECK(up[3 * width + 2] == value("gates", 2 * 10 + 5 + 3));
}

TEST_CASE("forms that cannot be are refused, also where a product wraps around") {
    sk::ParameterRecord parameter;
    parameter.name = "w";
    parameter.shape = {2, {2, 2}};
    const auto refused = [&](const sk::checkpoint::StoredAs& stored) {
        return thrown_message<std::invalid_argument>(
            [&] { sk::detail::StoredOrder::of(stored, "m", parameter, sk::SourceLocation::current()); });
    };
    constexpr std::size_t quarter = (std::size_t{1} << 62U) + 1;  // times 4 is 4
    CHECK(has(refused({"t", {2, 2}, {quarter, 4}, {1, 0}}), "expected extents of as many elements"));
    CHECK(has(refused({"t", {2, 2}, {4, quarter}, {1, 0}}), "seen as [4, 4611686018427387905]"));
    CHECK(has(refused({"t", {quarter, 4}}), "expected at most 8 extents of as many elements"));
    CHECK(has(refused({"", {}, {}, {}, {{"a", {quarter, 4}}}}), "expected at most 8 extents of as many elements"));
    CHECK(
        has(refused({"", {}, {}, {}, {{"a", {2}}, {"b", {1}}}}), "expected 4 elements in its tensors, they have 3"));
    CHECK(has(refused({"", {}, {}, {}, {{"a", {2}}, {"b", {3}}}}), "as 'b': shape [3]"));
    CHECK(has(refused({"", {}, {}, {}, {{"a", {4}}, {"b", {0}}}}), "as 'b': shape [0]"));
    CHECK(has(refused({"t", {4}, {}, {}, {{"a", {4}}}}), "expected either a tensor or parts"));
    CHECK(has(refused({"", {}, {}, {}, {{"", {4}}}}), "expected a name"));
    CHECK(has(refused(sk::checkpoint::stored_rows({{"a", 1}, {"b", 2}}, parameter.shape)), "as 'b'"));
    CHECK(refused(sk::checkpoint::stored_rows({{"a", 1}, {"b", 1}}, parameter.shape)) == "nothing was thrown");
    CHECK(has(thrown_message<std::invalid_argument>([] {
                  sk::checkpoint::stored_rows({{"a", 1}}, {});
              }),
              "a scalar has no rows"));
}

template <std::size_t Rows>
struct Vocabulary : sk::Param<"wte", float, Rows, 3> {};
struct Other : sk::Param<"other", float, 4> {};

TEST_CASE("a vocabulary that grew: its rows are loaded, further ones stay, their states are zero, where asked for") {
    const Folder folder;
    const auto go = [&]<std::size_t Rows>(std::integral_constant<std::size_t, Rows>, const Mesh& mesh,
                                          const sk::checkpoint::LoadOptions* options) {
        std::string thrown;
        sk::threads::run(mesh, [&](auto& rank) {
            sk::Sharded<sk::Params<Vocabulary<Rows>, Other>, sk::FullShard> layer(rank, "m");
            sk::Model model{layer};
            sk::SGD optimizer{model, {.learning_rate = 1, .rule = sk::Momentum::classical, .momentum = 0.5}};
            const sk::checkpoint::State state{model, optimizer};
            layer.initialize([](auto, auto, std::uint64_t i) { return static_cast<double>(1000 * Rows + i); });
            // States that are not zero, of rows that were there and of those that come.
            sk::Accumulation accumulation{model};
            auto gradients = accumulation.gradients(layer);
            for (float& g : gradients[Vocabulary<Rows>{}]) { g = static_cast<float>(Rows); }
            accumulation.add(std::move(gradients));
            optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
            if (options == nullptr) {
                sk::checkpoint::save(rank, folder.file("run"), 1, state);
                return;
            }
            const auto load = [&] {
                const auto report = sk::checkpoint::load(rank, folder.file("run/step-00000001"), state, *options);
                CHECK(report.grown == std::vector<std::string>{"m.wte", "momentum_buffer of m.wte"});
            };
            const std::string said = thrown_message<sk::FileError>(load);
            if (rank.rank() == 0) { thrown = said; }
            if (said != "nothing was thrown") { return; }
            const auto window = layer.unshard();
            for (std::size_t i = 0; i < 3 * Rows; ++i) {
                // A step took the gradient off each.
                CHECK(window[Vocabulary<Rows>{}][i] ==
                      static_cast<float>(i < 15 ? 5000 + i - 5 : 1000 * Rows + i - Rows));
            }
            for (const auto& info : optimizer.shards()) {
                if (info.parameter != "wte") { continue; }
                for (std::size_t i = info.range.begin; i < info.range.end; ++i) {
                    CHECK(static_cast<const float*>(info.data)[i - info.range.begin] == (i < 15 ? 5.F : 0.F));
                }
            }
        });
        return thrown;
    };
    go(std::integral_constant<std::size_t, 5>{}, Mesh(2, 1), nullptr);
    const sk::checkpoint::LoadOptions none;
    const sk::checkpoint::LoadOptions grown{.grown = [](std::string_view tensor) { return tensor == "m.wte"; }};
    CHECK(has(go(std::integral_constant<std::size_t, 7>{}, Mesh(1, 1), &none), "has shape [5, 3], expected [7, 3]"));
    CHECK(go(std::integral_constant<std::size_t, 7>{}, Mesh(1, 1), &grown) == "nothing was thrown");
    CHECK(go(std::integral_constant<std::size_t, 8>{}, Mesh(3, 1), &grown) == "nothing was thrown");
    // One that shrank is another.
    CHECK(has(go(std::integral_constant<std::size_t, 4>{}, Mesh(2, 1), &grown), "has shape [5, 3], expected [4, 3]"));
}

TEST_CASE("a tensor of no rows grows as others do: its rows stay, and their states are zero") {
    const Folder folder;
    const std::string step = folder.file("run/step-00000001");
    using Layer = sk::Sharded<sk::Params<Vocabulary<7>, Other>, sk::FullShard>;
    const auto with = [&](std::size_t ranks, double first, const auto& use) {
        sk::threads::run(Mesh(ranks, 1), [&](auto& rank) {
            Layer layer(rank, "m");
            layer.initialize([&](auto, auto, std::uint64_t i) { return first + static_cast<double>(i); });
            sk::Model model{layer};
            sk::SGD optimizer{model, {.learning_rate = 1, .rule = sk::Momentum::classical, .momentum = 0.5}};
            sk::Accumulation accumulation{model};
            auto gradients = accumulation.gradients(layer);
            for (float& g : gradients[Vocabulary<7>{}]) { g = 2; }
            for (float& g : gradients[Other{}]) { g = 3; }
            accumulation.add(std::move(gradients));
            optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
            use(rank, layer, model, optimizer);
        });
    };
    with(2, 0, [&](auto& rank, auto& /*layer*/, auto& model, auto& optimizer) {
        sk::checkpoint::save(rank, folder.file("run"), 1, sk::checkpoint::State{model, optimizer});
    });
    sk::detail::Manifest manifest =
        sk::detail::ManifestReader::read(renamed_in_step::bytes_of(step + "/manifest.json"));
    for (const auto& [name, metadata] : std::map<std::string, std::string>{
             {"model", ""},
             {"state/momentum_buffer", R"({"shardkit.kind":"state/momentum_buffer","shardkit.rule":"SGD"})"}}) {
        const std::string path = step + "/" + name + ".safetensors";
        const auto other = sk::safetensors::File(path).read<float>("m.other");
        written_tensors::write_file(path, {{"m.wte", {0, 3}, {}}, {"m.other", {4}, other}}, metadata);
        for (sk::detail::Manifest::File& file : manifest.files) {
            if (file.name != name + ".safetensors") { continue; }
            const std::string bytes = renamed_in_step::bytes_of(path);
            file.bytes = bytes.size();
            file.header_crc32c =
                sk::detail::crc32c::of(std::as_bytes(std::span(bytes)).first(bytes.size() - 4 * sizeof(float)));
            for (auto& tensor : file.tensors) {
                if (tensor.name == "m.wte") { tensor.crc32c = sk::detail::crc32c::of({}); }
            }
        }
    }
    std::ofstream(step + "/manifest.json", std::ios::binary) << sk::detail::manifest_text(manifest);
    const sk::checkpoint::LoadOptions grown{.grown = [](std::string_view tensor) { return tensor == "m.wte"; }};
    for (const std::size_t ranks : {1U, 3U}) {
        with(ranks, 100, [&](auto& rank, auto& layer, auto& model, auto& optimizer) {
            const auto check = [&] {
                const auto window = layer.unshard();
                for (std::size_t i = 0; i < 21; ++i) {
                    CHECK(window[Vocabulary<7>{}][i] == 98.F + static_cast<float>(i));
                }
                for (std::size_t i = 0; i < 4; ++i) { CHECK(window[Other{}][i] == static_cast<float>(i) - 3.F); }
            };
            sk::checkpoint::load_model(rank, step + "/model.safetensors", model, grown);
            check();
            sk::checkpoint::load(rank, step, sk::checkpoint::State{model, optimizer}, grown);
            check();
            for (const auto& info : optimizer.shards()) {
                for (std::size_t i = 0; i < info.range.size(); ++i) {
                    CHECK(static_cast<const float*>(info.data)[i] == (info.parameter == "wte" ? 0.F : 3.F));
                }
            }
        });
    }
}

TEST_CASE("rows of padding, which tp needs, are in no file: they are zero, and so are their states") {
    const Folder folder;
    constexpr std::size_t real = 5;
    /// A vocabulary of `rows`, of which the last ones are padding; a step, after a load where there is a file.
    const auto go = [&](std::size_t rows, const Mesh& mesh, int step, float padding) {
        std::string thrown;
        sk::threads::run(mesh, [&](auto& rank) {
            using Layer = sk::Sharded<sk::TensorList<float>, sk::FullShard>;
            const auto split = mesh.tp() > 1 ? sk::tp::Split<0>::placement : sk::TpPlacement{};
            Layer layer(rank, "m", sk::TensorList<float>{{"wte", {rows, 3}, {.tp = split}}, {"b", {4}}});
            sk::Model model{layer};
            sk::SGD optimizer{model, {.learning_rate = 1, .rule = sk::Momentum::classical, .momentum = 0.5}};
            const auto names = [](std::string_view path, const sk::ParameterRecord& parameter) {
                return parameter.name == "wte" && parameter.shape.extents[0] > real
                           ? sk::checkpoint::stored_without_padding("wte.weight", parameter.shape,
                                                                    parameter.shape.extents[0] - real)
                       : parameter.name == "wte" ? sk::checkpoint::stored("wte.weight", parameter.shape)
                                                 : sk::checkpoint::stored_by_path(path, parameter);
            };
            const sk::checkpoint::State state{model, optimizer};
            layer.initialize([&](auto, auto name, std::uint64_t i) {
                return name == "wte" && i >= 3 * real ? padding : static_cast<float>(i + 1);
            });
            if (step > 0) {
                layer.initialize([&](auto, auto, std::uint64_t) { return 77.0; });
                const auto report = sk::checkpoint::load(rank, folder.file("run/step-0000000" + std::to_string(step)),
                                                         state, {.names = names});
                CHECK((report.left.empty() && report.grown.empty()));
            }
            sk::Accumulation accumulation{model};
            auto gradients = accumulation.gradients(layer);
            const auto view = gradients.view("wte");
            // Rows that are no padding have a gradient of 1.
            const auto& part = layer.parameters()[0].part;
            for (std::size_t i = 0; i < view.size(); ++i) { view.data()[i] = part.whole_index(i) < 3 * real ? 1 : 0; }
            accumulation.add(std::move(gradients));
            optimizer.step(std::move(accumulation));
            std::vector<float> all(3 * rows);
            layer.read_full("wte", all);
            // Momentum makes it 1, 1.5 and 1.75.
            const float moved[] = {1, 2.5F, 4.25F};
            for (std::size_t i = 0; i < all.size(); ++i) {
                CHECK(all[i] == (i < 3 * real ? static_cast<float>(i + 1) - moved[step] : padding));
            }
            const std::string said = thrown_message<std::invalid_argument>([&] {
                sk::checkpoint::save(rank, folder.file("run"), static_cast<std::uint64_t>(step) + 1, state,
                                     {.names = names});
            });
            if (rank.rank() == 0) { thrown = said; }
        });
        return thrown;
    };
    CHECK(has(go(8, Mesh(1, 2), 0, 1),
              "'wte.weight' has rows of padding (checkpoint::StoredAs::padding_rows) that are "
              "not zero"));
    CHECK_FALSE(fs::exists(folder.file("run/step-00000001")));
    CHECK(go(8, Mesh(1, 2), 0, 0) == "nothing was thrown");
    const sk::safetensors::File file(folder.file("run/step-00000001/model.safetensors"));
    CHECK(file.find("wte.weight")->shape.describe() == "[5, 3]");
    CHECK(go(6, Mesh(2, 3), 1, 0) == "nothing was thrown");
    CHECK(go(5, Mesh(2, 1), 2, 0) == "nothing was thrown");
    CHECK(has(thrown_message<std::invalid_argument>(
                  [] { sk::checkpoint::stored_without_padding("w", sk::ParameterRecord{}.shape, 1); }),
              "with 1 rows of padding, expected fewer than it has"));
}

/// Renames and exchanges that fail.
class Failing : public sk::checkpoint::PosixFiles {
  public:
    explicit Failing(int rename, int exchange = 0) : rename_(rename), exchange_(exchange) {}
    int rename(const std::string& from, const std::string& to) override {
        return rename_ != 0 ? rename_ : PosixFiles::rename(from, to);
    }
    int exchange(const std::string& a, const std::string& b) override {
        return exchange_ != 0 ? exchange_ : PosixFiles::exchange(a, b);
    }

  private:
    int rename_;
    int exchange_;
};

TEST_CASE("a model's single file: by all ranks, in one rename, over one that is there where asked for") {
    const Folder folder;
    const std::string path = folder.file("model.safetensors");
    const auto go = [&](double first, sk::checkpoint::SaveOptions options) {
        std::array<std::string, 2> thrown;
        on(Mesh(2, 1), sk::DynamicPolicy(sk::FullShard{}), [&](auto& rank, auto& layer) {
            layer.initialize([&](auto, auto name, std::uint64_t i) { return first + value(name, i); });
            const sk::Model model{layer};
            thrown[rank.rank()] =
                thrown_message<sk::FileError>([&] { sk::checkpoint::save_model(rank, path, model, options); });
        });
        CHECK(thrown[0] == thrown[1]);
        return thrown[0];
    };
    const auto is = [&](double first) {
        const sk::safetensors::File file(path);
        return file.tensors().size() == 8 && file.read<float>("m.q")[5] == first + value("fused", 5) &&
               file.metadata().size() == 1 && contents(folder.path()).size() == 1;
    };
    CHECK(go(1, {.names = apart}) == "nothing was thrown");
    CHECK(is(1));
    CHECK(has(go(2, {.names = apart}), "exists, and checkpoint::SaveOptions::replace was not given"));
    CHECK(is(1));
    CHECK(go(3, {.names = apart, .replace = true}) == "nothing was thrown");
    CHECK(is(3));
    Failing broken(EIO);
    CHECK(has(go(4, {.names = apart, .replace = true, .files = &broken}), "cannot take its name"));
    CHECK(is(3));
    Failing lacks(0, EINVAL);
    CHECK(go(5, {.names = apart, .replace = true, .files = &lacks}) == "nothing was thrown");
    CHECK(is(5));
    fs::remove(path);
    fs::create_directory(path);
    CHECK(has(go(6, {.names = apart, .replace = true}), "is a folder"));
    CHECK(fs::is_directory(path));
    fs::remove(path);
    // And is a model for whoever loads one.
    CHECK(go(7, {.names = apart}) == "nothing was thrown");
    on(Mesh(1, 2), sk::DynamicPolicy(sk::NoShard{}), [&](auto& rank, auto& layer) {
        const sk::Model model{layer};
        if (sk::checkpoint::load_model(rank, folder.path(), model, {.names = apart}).tensors != 8) {
            throw std::logic_error("not all of it");
        }
    });
}

}  // namespace stored_parts_test
