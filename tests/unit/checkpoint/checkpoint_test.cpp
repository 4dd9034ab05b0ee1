// SPDX-License-Identifier: Apache-2.0
#include <shardkit/checkpoint.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/verbs/barrier.hpp>

#include "temporary_folder.hpp"
#include "test_size.hpp"
#include "unit/thrown_message.hpp"

namespace checkpoint_test {

namespace sk = shardkit;
namespace fs = std::filesystem;
using temporary_folder::contents;
using temporary_folder::Folder;

std::size_t entries(const std::string& folder) {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

// Runs over tp of less than a page and of more, a tensor that fewer ranks have than there are, one that tp splits in
// one piece, a frozen one.
template <class T>
struct Narrow : sk::Param<"narrow", T, 6, 12>, sk::tp::Split<1> {};
template <class T>
struct Wide : sk::Param<"wide", T, 2, 6000>, sk::tp::Split<1> {};
template <class T>
struct Bias : sk::Param<"bias", T, 3> {};
template <class T>
struct Rows : sk::Param<"rows", T, 12, 700>, sk::tp::Split<0> {};
template <class T>
struct Fixed : sk::Param<"fixed", T, 7>, sk::Frozen {};
template <class T>
using Block = sk::Params<Narrow<T>, Wide<T>, Bias<T>, Rows<T>, Fixed<T>>;

template <class T, class Precision = sk::DefaultPrecision<T>>
struct Model {
    using Layer = sk::Sharded<Block<T>, sk::DynamicPolicy, Precision>;

    Model(sk::Rank& rank, const sk::DynamicPolicy& policy) {
        layers.reserve(2);
        for (const char* path : {"blocks.0", "blocks.1"}) {
            layers.emplace_back(rank, path, sk::Shapes<Block<T>>{}, typename Layer::Options{policy});
        }
    }
    auto groups() { return sk::Model{layers}; }
    void initialize() {
        for (Layer& layer : layers) {
            layer.initialize([](std::string_view path, std::string_view name, std::uint64_t i) {
                return 0.001 * static_cast<double>(i % 977) + static_cast<double>(path.back()) +
                       0.25 * static_cast<double>(name.size());
            });
        }
    }
    /// Gradients that are the same on every rank of every mesh, so that the states are.
    template <class Optimizer>
    void step(Optimizer& optimizer, double gradient) {
        sk::Accumulation accumulation{groups()};
        for (Layer& layer : layers) {
            auto gradients = accumulation.gradients(layer);
            for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
                auto view = gradients.view(p);
                const bool counts = layer.rank().grid().coordinate(sk::Tp::name, layer.rank().rank()) == 0 ||
                                    layer.parameters()[p].split_over_tp();
                for (std::size_t i = 0; i < view.size(); ++i) {
                    view.data()[i] =
                        static_cast<typename Precision::Gradient>(static_cast<float>(counts ? gradient : 0));
                }
            }
            accumulation.add(std::move(gradients));
        }
        optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
    }

    std::vector<Layer> layers;
};

/// A model, and all else that a state can hold.
struct Training {
    Training(sk::Rank& rank, const sk::DynamicPolicy& policy, double scale = 2)
        : model(rank, policy),
          optimizer(model.groups()),
          loss_scale(rank, {.initial = scale}),
          state(model.groups(), optimizer, loss_scale) {
        state.blob("sampler", blob);
    }
    void begin() {
        blob = {3, 1, 2};
        model.initialize();
        model.step(optimizer, 0.5);
    }

    Model<float> model;
    sk::AdamW optimizer;
    sk::LossScale loss_scale;
    std::vector<std::uint8_t> blob;
    sk::checkpoint::State state;
};

const std::vector<sk::DynamicPolicy>& policies() {
    static const std::vector<sk::DynamicPolicy> all{
        sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::FullShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
        sk::DynamicPolicy(sk::ShardGradOp{})};
    return all;
}

/// Loads `from` on a mesh, and saves what it has then as `to`.
void load_and_save(sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic> mesh, const sk::DynamicPolicy& policy,
                   const std::string& from, const std::string& to) {
    sk::threads::run(mesh, [&](auto& rank) {
        Training training(rank, policy);
        const sk::checkpoint::LoadReport report = sk::checkpoint::load(rank, from, training.state);
        if (report.step != 7 || training.blob.size() != 3 || training.loss_scale.value() != 64 ||
            training.optimizer.steps(training.model.layers[1]) != 1) {
            throw std::logic_error("not what was saved");
        }
        sk::checkpoint::save(rank, to, report.step, training.state, {.strings = report.strings});
    });
}
/// The state that the tests begin with, saved by one rank.
void save_first(const std::string& folder,
                sk::checkpoint::SaveOptions options = {.strings = {{"text", "a \"b\" \\ \n c"}}}) {
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        Training training(rank, sk::DynamicPolicy(sk::NoShard{}), 64);
        training.begin();
        sk::checkpoint::save(rank, folder, 7, training.state, std::move(options));
    });
}

TEST_CASE("a state is one set of bytes, whatever mesh and policy has it") {
    const Folder folder;
    save_first(folder.file("first"));
    const std::string first = folder.file("first/step-00000007");
    const auto expected = contents(first);
    CHECK(expected.size() == 5);
    const sk::safetensors::File model(first + "/model.safetensors");
    CHECK(model.at("blocks.0.narrow").shape == sk::TensorShape{2, {6, 12}});
    // The first AdamW step is one learning rate, whatever the gradient; frozen ones stay.
    CHECK(model.read<float>("blocks.1.bias")[1] ==
          doctest::Approx(0.001 + 49 + 1 - 1e-3 * (1 + 0.01 * 50)).epsilon(1e-6));
    CHECK(model.read<float>("blocks.1.fixed")[2] == 0.002F + 49 + 1.25F);
    const sk::safetensors::File states(first + "/state/exp_avg.safetensors");
    CHECK(states.tensors().size() == 8);
    CHECK(states.read<float>("blocks.0.wide")[11999] == doctest::Approx(0.05));

    std::string last = first;
    std::size_t number = 0;
    const auto check = [&](std::size_t dp, std::size_t tp, std::size_t cp, const sk::DynamicPolicy& policy) {
        CAPTURE(dp);
        CAPTURE(tp);
        CAPTURE(cp);
        CAPTURE(policy.name());
        const std::string next = folder.file(std::to_string(number++));
        REQUIRE_NOTHROW(load_and_save(sk::DeviceMesh{dp, tp, cp}, policy, last, next));
        last = next + "/step-00000007";
        CHECK(contents(last) == expected);
    };
    for (const sk::DynamicPolicy& policy : policies()) {
        check(3, 1, 1, policy);
        check(1, 2, 2, policy);
        check(5, 1, 1, policy);
        check(2, 3, 1, policy);
    }
    check(4, 1, 2, sk::DynamicPolicy(sk::HybridShard<2>{}));
}

TEST_CASE("a 16-bit model with masters is loaded into other precisions and back") {
    const Folder folder;
    using Mixed = sk::Precision<sk::bf16, sk::bf16, float, float>;
    const auto go = [&](auto mesh, auto precision, auto element, const std::string& from, const std::string& to) {
        sk::threads::run(mesh, [&](auto& rank) {
            Model<decltype(element), decltype(precision)> model(rank, sk::DynamicPolicy(sk::FullShard{}));
            sk::AdamW optimizer{model.groups()};
            sk::checkpoint::State state{model.groups(), optimizer};
            if (from.empty()) {
                model.initialize();
                model.step(optimizer, 0.5);
            } else {
                sk::checkpoint::load(rank, from, state);
            }
            sk::checkpoint::save(rank, to, 1, state);
        });
    };
    using Full = sk::DefaultPrecision<float>;
    go(sk::DeviceMesh<2>{}, Mixed{}, sk::bf16{}, "", folder.file("mixed"));
    go(sk::DeviceMesh<3>{}, Full{}, 0.F, folder.file("mixed/step-00000001"), folder.file("full"));
    go(sk::DeviceMesh<1>{}, Mixed{}, sk::bf16{}, folder.file("full/step-00000001"), folder.file("again"));
    auto mixed = contents(folder.file("mixed/step-00000001"));
    CHECK(mixed.count("state/master.safetensors") == 1);
    const sk::safetensors::File masters(folder.file("mixed/step-00000001/state/master.safetensors"));
    const sk::safetensors::File full(folder.file("full/step-00000001/model.safetensors"));
    CHECK(masters.read<float>("blocks.1.rows") == full.read<float>("blocks.1.rows"));
    CHECK(contents(folder.file("again/step-00000001")) == mixed);
}

template <class T>
struct Wider : sk::Param<"weight", T, 64> {};

TEST_CASE("a value that the narrower type cannot hold is refused on every rank, and what was infinite stays so") {
    const Folder folder;
    using Half = sk::Precision<sk::fp16, sk::fp16, float, sk::fp16>;
    for (const double largest : {65519.0, 65520.0, double{std::numeric_limits<float>::infinity()}}) {
        CAPTURE(largest);
        std::array<std::string, 2> told;
        std::array<float, 2> seen{};
        sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
            sk::Sharded<Wider<float>, sk::FullShard> full{rank, "layer"};
            full.initialize([&](auto, auto, std::uint64_t i) { return i == 40 ? largest : 1.0; });
            const sk::Model model{full};
            sk::checkpoint::save(rank, folder.file("run"), 1, sk::checkpoint::State{model}, {.replace = true});
            sk::Sharded<Wider<sk::fp16>, sk::FullShard, Half> half{rank, "layer"};
            const sk::Model narrow{half};
            sk::checkpoint::State state{narrow};
            told[rank.rank()] = thrown_message<sk::FileError>(
                [&] { sk::checkpoint::load(rank, folder.file("run/step-00000001"), state); });
            if (told[rank.rank()] != "nothing was thrown") {
                // Of two states, perhaps others on each rank: nothing shows them.
                CHECK(thrown_message<sk::UsageError>([&] {
                          static_cast<void>(half.unshard());
                      }).find("ended with an error before 'weight' had its parameter") != std::string::npos);
                return;
            }
            const auto window = half.unshard();
            seen[rank.rank()] = static_cast<float>(window[Wider<sk::fp16>{}][40]);
        });
        CHECK(told[0] == told[1]);
        if (largest == 65520.0) {  // half way past the largest finite fp16
            CHECK(told[0].find("tensor 'layer.weight': a finite element is beyond the range of fp16") !=
                  std::string::npos);
        } else {
            CHECK(told[0] == "nothing was thrown");
            CHECK(seen[0] == (largest == 65519.0 ? 65504.0F : std::numeric_limits<float>::infinity()));
            CHECK(seen[1] == seen[0]);
        }
    }
    const sk::safetensors::File file(folder.file("run/step-00000001/model.safetensors"));
    CHECK(file.read<sk::bf16>("layer.weight").size() == 64);
}

TEST_CASE("names and orders of others") {
    const Folder folder;
    const sk::checkpoint::TensorNames names = [](std::string_view path, const sk::ParameterRecord& parameter) {
        const std::string name = std::string(path) + "/" + std::string(parameter.name);
        if (parameter.name == "rows") {
            // [heads 2][3][2] rows as [700, 3, 2, 2].
            return sk::checkpoint::StoredAs{name, {700, 12}, {2, 3, 2, 700}, {3, 1, 0, 2}};
        }
        return parameter.shape.rank == 2 ? sk::checkpoint::stored_transposed(name, parameter.shape)
                                         : sk::checkpoint::stored(name, parameter.shape);
    };
    save_first(folder.file("plain"));
    save_first(folder.file("named"), {.names = names});
    const sk::safetensors::File plain(folder.file("plain/step-00000007/model.safetensors"));
    const sk::safetensors::File named(folder.file("named/step-00000007/model.safetensors"));
    const auto rows = plain.read<float>("blocks.0.rows");
    const auto other = named.read<float>("blocks.0/rows", sk::TensorShape{2, {700, 12}});
    for (std::size_t head : {0U, 1U}) {
        for (std::size_t which = 0; which < 3; ++which) {
            const std::size_t row = head * 6 + which * 2 + 1;
            CHECK(other[345 * 12 + which * 4 + head * 2 + 1] == rows[row * 700 + 345]);
        }
    }
    CHECK(named.read<float>("blocks.1/narrow")[5 * 6 + 2] == plain.read<float>("blocks.1.narrow")[2 * 12 + 5]);
    sk::threads::run(sk::DeviceMesh{std::size_t{2}, std::size_t{2}, std::size_t{1}}, [&](auto& rank) {
        Training training(rank, sk::DynamicPolicy(sk::FullShard{}));
        const auto model = training.model.groups();
        const auto& state = training.state;
        sk::checkpoint::load(rank, folder.file("named/step-00000007"), state, {.names = names});
        sk::checkpoint::save(rank, folder.file("back"), 7, state, {.strings = {{"text", "a \"b\" \\ \n c"}}});
        // A model alone, and its own file in a folder of several.
        sk::checkpoint::save(rank, folder.file("cut"), 7, sk::checkpoint::State{model}, {.max_file_bytes = 50000});
        sk::checkpoint::load_model(rank, folder.file("cut/step-00000007"), model);
        sk::checkpoint::save(rank, folder.file("back"), 8, state, {.strings = {{"text", "a \"b\" \\ \n c"}}});
    });
    CHECK(contents(folder.file("back/step-00000007")) == contents(folder.file("plain/step-00000007")));
    CHECK(contents(folder.file("back/step-00000008")).at("model.safetensors") ==
          contents(folder.file("plain/step-00000007")).at("model.safetensors"));
    CHECK(contents(folder.file("cut/step-00000007")).count("model.safetensors.index.json") == 1);
}

/// The file system, in which the call number `fails` of all ranks fails.
class Failing : public sk::checkpoint::PosixFiles {
  public:
    Failing(std::size_t fails, int error) : fails_(fails), error_(error) {}
    std::string verb() const { return verb_; }
    bool failed() const { return calls_ > fails_; }

    int make_folder(const std::string& path) override {
        return or_else("make_folder", [&] { return PosixFiles::make_folder(path); });
    }
    int create_file(const std::string& path) override {
        return or_else("create_file", [&] { return PosixFiles::create_file(path); });
    }
    int reserve(int file, std::uint64_t bytes) override {
        return or_else(
            "reserve", [&] { return PosixFiles::reserve(file, bytes); }, true);
    }
    int open_to_write(const std::string& path, int& file) override {
        return or_else("open_to_write", [&] { return PosixFiles::open_to_write(path, file); });
    }
    int write(int file, std::uint64_t offset, std::span<const std::byte> bytes, std::size_t& written) override {
        // Short ones too.
        return or_else(
            "write",
            [&] {
                return PosixFiles::write(file, offset, bytes.first(bytes.size() > 9000 ? 8000 : bytes.size()),
                                         written);
            },
            true);
    }
    int sync(int file) override {
        return or_else(
            "sync", [&] { return PosixFiles::sync(file); }, true);
    }
    int sync_folder(const std::string& path) override {
        return or_else("sync_folder", [&] { return PosixFiles::sync_folder(path); });
    }
    int rename(const std::string& from, const std::string& to) override {
        return or_else("rename", [&] { return PosixFiles::rename(from, to); });
    }

  private:
    /// A signal interrupts some calls only.
    template <class F>
    int or_else(const char* verb, const F& call, bool interrupted = false) {
        if (error_ == EINTR && !interrupted) { return call(); }
        if (calls_.fetch_add(1) != fails_) { return call(); }
        verb_ = verb;
        return error_;
    }
    const char* verb_ = "";  // by the call that fails
    std::atomic<std::size_t> calls_{0};
    std::size_t fails_;
    int error_;
};

/// Saves on two ranks; what each rank threw, or nothing.
std::vector<std::string> save_on_two(const std::string& folder, std::uint64_t step, sk::checkpoint::FileCalls& files,
                                     bool beside = false) {
    std::vector<std::string> thrown(2);
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        Model<float> model(rank, sk::DynamicPolicy(sk::FullShard{}));
        sk::SGD optimizer{model.groups()};
        model.initialize();
        const sk::checkpoint::State state{model.groups(), optimizer};
        try {
            if (beside) {
                sk::checkpoint::begin_save(rank, folder, step, state, {.files = &files}).commit();
            } else {
                sk::checkpoint::save(rank, folder, step, state, {.files = &files});
            }
        } catch (const sk::FileError& error) { thrown[rank.rank()] = error.what(); }
        sk::barrier(rank.world(), rank.compute_stream());  // the ranks still communicate
    });
    return thrown;
}

TEST_CASE("each file call fails in turn: every rank says which, and nothing of the save is left") {
    const Folder folder;
    bool beside = false;
    SUBCASE("save") { beside = false; }
    SUBCASE("begin_save") { beside = true; }
    sk::checkpoint::PosixFiles sound;
    CHECK(save_on_two(folder.file("run"), 1, sound) == std::vector<std::string>{"", ""});
    const auto before = contents(folder.file("run"));
    for (std::size_t call = 0;; ++call) {
        const auto [error, word] =
            std::array{std::pair(ENOSPC, "ENOSPC"), std::pair(EIO, "EIO"), std::pair(EROFS, "EROFS"),
                       std::pair(EACCES, "EACCES"), std::pair(EDQUOT, "EDQUOT")}[call % 5];
        Failing files(call, error);
        const auto thrown = save_on_two(folder.file("run"), 2, files, beside);
        CAPTURE(call);
        const bool named = fs::exists(folder.file("run/step-00000002"));
        const std::size_t left = entries(folder.file("run"));
        fs::remove_all(folder.file("run/step-00000002"));
        if (!files.failed()) {
            CHECK(call > 15);
            CHECK(thrown[0].empty());
            break;
        }
        CHECK(thrown[0] == thrown[1]);
        // A folder that is there already need not be made; what fails after the name was taken leaves the new step,
        // whole.
        CAPTURE(files.verb());
        if (files.verb() != "make_folder") { CHECK(!thrown[0].empty()); }
        if (!thrown[0].empty()) { CHECK(thrown[0].find(word) != std::string::npos); }
        CHECK((named ? thrown[0].empty() || thrown[0].find("durable") != std::string::npos : !thrown[0].empty()));
        CHECK(left == (named ? 2 : 1));
        CHECK(contents(folder.file("run")) == before);
    }
    for (std::size_t call = 0;; ++call) {
        if (beside && test_size::reduced() && call % 4 != 0) { continue; }  // as the calls of save() are
        Failing interrupted(call, EINTR);
        CHECK(save_on_two(folder.file("run"), 3, interrupted, beside) == std::vector<std::string>{"", ""});
        if (!interrupted.failed()) {
            CHECK(call > 8);
            break;
        }
        fs::remove_all(folder.file("run/step-00000003"));
    }
}

TEST_CASE("one flipped bit anywhere is found and named") {
    const Folder folder;
    std::size_t files = 0;
    SUBCASE("in whole files") {
        save_first(folder.file("run"));
        files = 5;
    }
    SUBCASE("in files that were cut, and their index") {
        save_first(folder.file("run"), {.max_file_bytes = 100'000});
        files = 9;
    }
    const std::string step = folder.file("run/step-00000007");
    const auto load = [&] {
        return thrown_message<sk::FileError>([&] {
            sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
                const Training training(rank, sk::DynamicPolicy(sk::NoShard{}));
                sk::checkpoint::load(rank, step, training.state);
            });
        });
    };
    CHECK(load() == "nothing was thrown");
    CHECK(contents(step).size() == files);
    for (const auto& file : contents(step)) {
        const std::string& name = file.first;
        const std::string& text = file.second;
        for (const std::size_t at : {std::size_t{0}, std::size_t{9}, text.size() / 2, text.size() - 1}) {
            std::string flipped = text;
            flipped[at] = static_cast<char>(flipped[at] ^ 4);
            std::ofstream(step + "/" + name, std::ios::binary) << flipped;
            CAPTURE(name);
            CAPTURE(at);
            CHECK(load().find(name) != std::string::npos);
        }
        for (const std::size_t size : {std::size_t{3}, text.size() - 1}) {
            std::ofstream(step + "/" + name, std::ios::binary) << text.substr(0, size);
            CHECK(load().find(name) != std::string::npos);
        }
        fs::remove(step + "/" + name);
        CHECK(load().find("ENOENT") != std::string::npos);
        std::ofstream(step + "/" + name, std::ios::binary) << text;
    }
    CHECK(load() == "nothing was thrown");
}

TEST_CASE("latest, keep, replace, and what is refused") {
    const Folder folder;
    const std::string run = folder.file("run");
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        CHECK_FALSE(sk::checkpoint::latest(rank, run).has_value());
        Model<float> model(rank, sk::DynamicPolicy(sk::ShardOptimizer{}));
        sk::SGD optimizer{model.groups()};
        const sk::checkpoint::State state{model.groups(), optimizer};
        const std::uint64_t greatest = std::numeric_limits<std::uint64_t>::max();
        sk::checkpoint::save(rank, run + "/greatest", greatest, state);
        sk::checkpoint::save(rank, run + "/greatest", greatest - 1, state);
        CHECK(sk::checkpoint::latest(rank, run + "/greatest")->step == greatest);
        if (rank.rank() == 0) { fs::remove_all(run + "/greatest"); }
        for (std::uint64_t step = 1; step <= 4; ++step) { sk::checkpoint::save(rank, run, step, state, {.keep = 2}); }
        CHECK(sk::checkpoint::latest(rank, run)->step == 4);
        // What was killed within a save; the next one removes it.
        if (rank.rank() == 0) {
            const std::string killed = run + "/step-00000009.tmp-0123456789abcdef";
            fs::create_directories(killed + "/state");
            std::ofstream(killed + "/uncommitted.shardkit") << "";
        }
        sk::checkpoint::save(rank, run, 5, state, {.keep = 2});
        const std::string exists = thrown_message<sk::FileError>([&] { sk::checkpoint::save(rank, run, 5, state); });
        CHECK(exists.find("exists") != std::string::npos);
        const std::string all =
            "'" + run + "': rank 0: is the folder of a run's steps, up to step-00000005: expected ";
        CHECK(has(thrown_message<sk::FileError>([&] { sk::checkpoint::load(rank, run, state); }),
                  all + "the folder of one of them, as checkpoint::latest returns (" + __FILE__));
        CHECK(has(thrown_message<sk::FileError>([&] { sk::checkpoint::load_model(rank, run, model.groups()); }),
                  all + "the files of one model"));
        model.initialize();
        sk::checkpoint::save(rank, run, 5, state, {.replace = true});
        const std::string differs =
            thrown_message<std::invalid_argument>([&] { sk::checkpoint::save(rank, run, 6 + rank.rank(), state); });
        CHECK(differs.find("save: rank 0 would write with step 6, rank 1 with step 7, expected the same folder") ==
              0);
        {
            const sk::Accumulation open{model.groups()};
            const std::string within =
                thrown_message<sk::UsageError>([&] { sk::checkpoint::save(rank, run, 6, state); });
            CHECK(within.find("'blocks.0' is within an accumulation") != std::string::npos);
            // The place stands there once.
            CHECK(within.find(__FILE__) == within.rfind(__FILE__));
        }
        const auto window = model.layers[1].unshard();
        const std::string shown =
            thrown_message<sk::UsageError>([&] { sk::checkpoint::load(rank, run + "/step-00000005", state); });
        CHECK(shown.find("'blocks.1': optimizer step or load while 1 window(s)") != std::string::npos);
    });
    CHECK(entries(run) == 2);
    CHECK(fs::exists(run + "/step-00000004/manifest.json"));
    // A step without a manifest is none.
    fs::remove(run + "/step-00000005/manifest.json");
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        const auto found = sk::checkpoint::latest(rank, run);
        REQUIRE(found.has_value());
        CHECK(found->step == 4);
        REQUIRE(found->skipped.size() == 1);
        CHECK(found->skipped[0].find("step-00000005") != std::string::npos);
        Model<float> model(rank, sk::DynamicPolicy(sk::NoShard{}));
        sk::AdamW optimizer{model.groups()};
        const sk::checkpoint::State state{model.groups(), optimizer};
        const std::string lacks =
            thrown_message<sk::FileError>([&] { sk::checkpoint::load(rank, found->path, state); });
        CHECK(lacks.find(". It and the files beside it lack 'exp_avg of blocks.0.narrow'") != std::string::npos);
        const auto elsewhere = [](std::string_view path, const sk::ParameterRecord& parameter) {
            return sk::checkpoint::stored(sk::detail::concat(path, ".", parameter.name, ".x"), parameter.shape);
        };
        const std::string beside = thrown_message<sk::FileError>(
            [&] { sk::checkpoint::load_model(rank, found->path, model.groups(), {.names = elsewhere}); });
        CHECK(has(beside, "model.safetensors': rank 0: it and the files beside it lack 'blocks.0.narrow.x'"));
        CHECK(sk::checkpoint::load(rank, found->path, state, {.states = false}).tensors == 10);
    });
}

TEST_CASE("a save after different updates is refused on every rank with what differs, and leaves nothing") {
    const Folder folder;
    const auto said = [&](const std::string& name, auto policy, const auto& differ) {
        const std::string run = folder.file(name);
        std::vector<std::string> texts(2);
        sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
            Model<float> model(rank, sk::DynamicPolicy(policy));
            sk::SGD optimizer{model.groups()};
            const auto groups = model.groups();
            optimizer.step(sk::assume_reduced(groups));
            differ(rank.rank(), optimizer, groups);
            texts[rank.rank()] = thrown_message<sk::UsageError>([&] {
                sk::checkpoint::save(rank, run, 1, sk::checkpoint::State{groups, optimizer});
            });
        });
        CHECK_FALSE(fs::exists(run));
        CHECK(texts[0] == texts[1]);
        return texts[1];
    };
    const auto once_more = [](std::size_t rank, auto& optimizer, const auto& groups) {
        if (rank == 1) { optimizer.step(sk::assume_reduced(groups)); }
    };
    const auto another_rate = [](std::size_t rank, auto& optimizer, const auto& groups) {
        optimizer.set_learning_rate(rank == 1 ? 0.5 : 0.25);
        optimizer.step(sk::assume_reduced(groups));
    };
    const auto check = [&](const std::string& name, auto policy) {
        const std::string more = said(name + "-more", policy, once_more);
        CAPTURE(more);
        CHECK(more.find("save: the ranks disagree in what was updated before: rank 0 saves with updates 1 of "
                        "'blocks.0' (stated at ") == 0);
        CHECK(more.find(", rank 1 saves with updates 2 of 'blocks.0' (stated at ") != std::string::npos);
        const std::string rate = said(name + "-rate", policy, another_rate);
        CAPTURE(rate);
        CHECK(rate.find("rank 0 saves with learning rate 0.25 (stated at ") != std::string::npos);
        CHECK(rate.find("rank 1 saves with learning rate 0.5 (stated at ") != std::string::npos);
    };
    check("no-shard", sk::NoShard{});
    check("full-shard", sk::FullShard{});
}

/// Files whose first write takes its time: long enough for a step that does not wait.
class Slow : public sk::checkpoint::PosixFiles {
  public:
    int write(int file, std::uint64_t offset, std::span<const std::byte> bytes, std::size_t& written) override {
        if (first_.exchange(false)) { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }
        return PosixFiles::write(file, offset, bytes, written);
    }

  private:
    std::atomic<bool> first_{true};
};

TEST_CASE("a pending save holds updates back until it is written") {
    const Folder folder;
    save_first(folder.file("first"));
    for (const sk::checkpoint::Staging staging : {sk::checkpoint::Staging::none, sk::checkpoint::Staging::copy}) {
        fs::remove_all(folder.file("run"));
        sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
            Training training(rank, sk::DynamicPolicy(sk::ShardGradOp{}), 64);
            const auto& state = training.state;
            training.begin();
            Slow files;
            const sk::checkpoint::SaveOptions options{
                .strings = {{"text", "a \"b\" \\ \n c"}}, .staging = staging, .files = &files};
            sk::checkpoint::PendingSave pending =
                sk::checkpoint::begin_save(rank, folder.file("run"), 7, state, options);
            if (staging == sk::checkpoint::Staging::none) {
                const std::string twice = thrown_message<sk::UsageError>([&] {
                    static_cast<void>(sk::checkpoint::begin_save(rank, folder.file("run"), 8, state, options));
                });
                CHECK(twice.find("still pending") != std::string::npos);
            }
            training.model.step(training.optimizer, 0.25);
            std::move(pending).commit();
            // Dropped: abandoned.
            {
                const sk::checkpoint::PendingSave dropped =
                    sk::checkpoint::begin_save(rank, folder.file("run"), 8, state, options);
            }
        });
        CHECK(contents(folder.file("run/step-00000007")) == contents(folder.file("first/step-00000007")));
        CHECK(entries(folder.file("run")) == 1);
    }
}

TEST_CASE("what the writer beside a step failed with is thrown by commit on every rank, and training goes on") {
    const Folder folder;
    const std::string run = folder.file("run");
    std::array<std::string, 2> thrown;
    std::array<std::string, 2> told;
    for (const sk::checkpoint::Staging staging : {sk::checkpoint::Staging::none, sk::checkpoint::Staging::copy}) {
        fs::remove_all(run);
        sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
            Training training(rank, sk::DynamicPolicy(sk::FullShard{}));
            training.begin();
            sk::checkpoint::PosixFiles sound;
            // Its writer fails on rank 1 alone, long before the step.
            const auto begin = [&](std::uint64_t step, Failing& failing) {
                sk::checkpoint::FileCalls& files =
                    rank.rank() == 1 ? static_cast<sk::checkpoint::FileCalls&>(failing) : sound;
                return sk::checkpoint::begin_save(rank, run, step, training.state,
                                                  {.staging = staging, .files = &files});
            };
            Failing failing(4, ENOSPC);
            sk::checkpoint::PendingSave pending = begin(1, failing);
            training.model.step(training.optimizer, 0.25);  // the gate waits for the writer, and changes nothing
            CHECK(training.optimizer.steps(training.model.layers[1]) == 2);
            training.model.step(training.optimizer, 0.25);
            thrown[rank.rank()] = thrown_message<sk::FileError>([&] { std::move(pending).commit(); });
            if (rank.rank() == 0) { CHECK(entries(run) == 0); }
            sk::barrier(rank.world(), rank.compute_stream());
            sk::checkpoint::save(rank, run, 2, training.state);
            // Failed and dropped: nothing of it is left, and the next save says why, once.
            Failing again(4, EIO);
            {
                const sk::checkpoint::PendingSave gone = begin(3, again);
                // Else rank 0 may have removed the files before: then no call of this rank fails, nor ever would.
                while (rank.rank() == 1 && !again.failed()) { std::this_thread::yield(); }
                sk::barrier(rank.world(), rank.compute_stream());
            }
            sk::barrier(rank.world(), rank.compute_stream());
            told[rank.rank()] =
                thrown_message<sk::FileError>([&] { sk::checkpoint::save(rank, run, 4, training.state); });
            if (rank.rank() == 0) { CHECK(entries(run) == 1); }
            sk::checkpoint::save(rank, run, 4, training.state);
        });
        CHECK(told[0] == told[1]);
        CHECK(told[0].find("rank 1: a save that was dropped before it was committed had failed: ") !=
              std::string::npos);
        CHECK(told[0].find("EIO") != std::string::npos);
        CHECK(thrown[0] == thrown[1]);
        CHECK(thrown[0].find("rank 1: ") != std::string::npos);
        CHECK(thrown[0].find("ENOSPC") != std::string::npos);
        CHECK(entries(run) == 2);
        CHECK(fs::exists(run + "/step-00000004/manifest.json"));
    }
}

TEST_CASE(
    "a rank that throws while a save is pending ends the job; the older step is whole, and the next save clears up") {
    const Folder folder;
    const std::string run = folder.file("run");
    sk::checkpoint::PosixFiles sound;
    CHECK(save_on_two(run, 1, sound) == std::vector<std::string>{"", ""});
    const auto before = contents(run);
    for (const std::size_t culprit : {0U, 1U}) {
        CAPTURE(culprit);
        const std::string said = thrown_message<std::logic_error>([&] {
            sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
                Model<float> model(rank, sk::DynamicPolicy(sk::FullShard{}));
                const sk::checkpoint::State state{model.groups()};
                sk::checkpoint::PendingSave pending = sk::checkpoint::begin_save(rank, run, 2, state);
                if (rank.rank() == culprit) { throw std::logic_error("planted"); }
                std::move(pending).commit();
            });
        });
        CHECK(said.find("planted") != std::string::npos);
        CHECK_FALSE(fs::exists(run + "/step-00000002"));
        CHECK(save_on_two(run, 3, sound) == std::vector<std::string>{"", ""});
        CHECK(entries(run) == 2);
        fs::remove_all(run + "/step-00000003");
        CHECK(contents(run) == before);
    }
}

/// Counts what is read.
class Counted : public sk::checkpoint::PosixFiles {
  public:
    int read(int file, std::uint64_t at, std::span<std::byte> bytes, std::size_t& count) override {
        const int error = PosixFiles::read(file, at, bytes, count);
        total += count;
        return error;
    }
    std::atomic<std::uint64_t> total{0};
};

struct Transposed : sk::Param<"transposed", float, 8192, 128>, sk::tp::Split<0> {};

TEST_CASE(
    "of a tensor in another order a rank reads the pages that it keeps, and the bytes whose digest is its own") {
    const Folder folder;
    const sk::checkpoint::TensorNames names = [](std::string_view, const sk::ParameterRecord& parameter) {
        return sk::checkpoint::stored_transposed("t", parameter.shape);
    };
    const auto value = [](std::uint64_t i) { return static_cast<double>(i * 2654435761U >> 12U & 0xFFFFU); };
    const auto run = [&](std::size_t dp, std::size_t tp, auto policy, std::uint64_t most, bool digests) {
        CAPTURE(dp);
        CAPTURE(tp);
        sk::threads::run(sk::DeviceMesh(dp, tp), [&](auto& rank) {
            sk::Sharded<Transposed, decltype(policy)> layer(rank, "layer");
            const sk::Model model{layer};
            if (most == 0) {
                layer.initialize([&](auto, auto, std::uint64_t i) { return value(i); });
                sk::checkpoint::save(rank, folder.file("run"), 1, sk::checkpoint::State{model}, {.names = names});
                return;
            }
            Counted files;
            const std::string step = folder.file("run/step-00000001");
            if (digests) {
                sk::checkpoint::load(rank, step, sk::checkpoint::State{model}, {.names = names, .files = &files});
            } else {
                sk::checkpoint::load_model(rank, step, model, {.names = names, .files = &files});
            }
            CHECK(files.total < most + 20'000);  // header and manifest
            CHECK(files.total >= most / 2);
            const auto window = layer.unshard();
            const auto& parameter = layer.parameters()[0];
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < window[Transposed{}].size(); i += test_size::reduced() ? 19U : 1U) {
                wrong +=
                    window[Transposed{}][i] == static_cast<float>(value(parameter.part.whole_index(i))) ? 0U : 1U;
            }
            CHECK(wrong == 0);
        });
    };
    constexpr std::uint64_t whole = 8192 * 128 * sizeof(float);
    run(2, 1, sk::FullShard{}, 0, true);  // saves
    run(4, 1, sk::FullShard{}, whole / 4, false);
    run(4, 1, sk::FullShard{}, whole / 2, true);
    run(1, 4, sk::FullShard{}, whole / 4, false);
    run(1, 4, sk::NoShard{}, whole / 2, true);
    run(2, 2, sk::FullShard{}, whole / 4, false);
    run(3, 1, sk::NoShard{}, whole, true);
    run(8, 1, sk::FullShard{}, whole / 4, true);
}

TEST_CASE("what a checkpoint says of itself is read without its tensors") {
    const Folder folder;
    save_first(folder.file("run"));
    const std::string step = folder.file("run/step-00000007");
    const sk::checkpoint::Info info = sk::checkpoint::info(step);
    CHECK(info.step == 7);
    REQUIRE(info.strings.size() == 1);
    CHECK(info.strings[0] == std::pair<std::string, std::string>("text", "a \"b\" \\ \n c"));
    std::uint64_t bytes = 0;
    for (const auto& [name, text] : contents(step)) { bytes += name == "manifest.json" ? 0 : text.size(); }
    CHECK(info.bytes == bytes);
    const auto refused = [&](const std::string& path) {
        return thrown_message<sk::FileError>([&] { sk::checkpoint::info(path); });
    };
    CHECK(has(refused(folder.file("run")), "is the folder of a run's steps"));
    fs::resize_file(step + "/state/exp_avg.safetensors", 5000);
    CHECK(refused(step).find("exp_avg.safetensors") != std::string::npos);
    std::ofstream(step + "/manifest.json", std::ios::app) << " ";
    CHECK(refused(step).find("its own digest") != std::string::npos);
}

TEST_CASE("CRC-32C is the same however a text is cut") {
    namespace crc = sk::detail::crc32c;
    const std::string text = "123456789";
    CHECK(crc::of(std::as_bytes(std::span(text))) == 0xE3069283U);  // RFC 3720
    std::vector<std::byte> bytes(70000);
    for (std::size_t i = 0; i < bytes.size(); ++i) { bytes[i] = static_cast<std::byte>(i * i + i / 7); }
    const std::uint32_t whole = crc::of(bytes);
    CHECK(~crc::extend_by_tables(0xFFFFFFFFU, bytes.data(), bytes.size()) == whole);
#if defined(__x86_64__)
    // What the processor at hand cannot do is not tried.
    for (std::size_t count = 0; count <= bytes.size(); count += count < 1100 ? 1 : 6890) {
        CAPTURE(count);
        const std::byte* const from = bytes.data() + (count < 1100 ? count % 67 : 0);
        const std::uint32_t expected = crc::extend_by_tables(0x1234567, from, count);
        if (crc::has_instruction()) { CHECK(crc::extend_by_instruction(0x1234567, from, count) == expected); }
        if (crc::folds()) { CHECK(crc::extend_by_folding(0x1234567, from, count) == expected); }
    }
#endif
    std::uint32_t sum = 0;
    std::size_t size = 1;
    for (std::size_t at = 0; at < bytes.size(); size = 3 * size + 1) {
        const auto piece = std::span(bytes).subspan(at, std::min(size, bytes.size() - at));
        at += piece.size();
        sum ^= crc::behind(crc::extend(0, piece), bytes.size() - at);
    }
    CHECK(crc::finished(sum, bytes.size()) == whole);
}

}  // namespace checkpoint_test
