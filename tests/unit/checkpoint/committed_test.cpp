// SPDX-License-Identifier: Apache-2.0
// What a save commits is loaded again, or is refused while everything that was there is still there.
#include <shardkit/checkpoint.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/resource.h>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/reduce.hpp>

#include "files_in_cache.hpp"
#include "named_states.hpp"
#include "temporary_folder.hpp"
#include "test_size.hpp"
#include "unit/thrown_message.hpp"

namespace committed_test {

namespace {

namespace sk = shardkit;
namespace fs = std::filesystem;
using temporary_folder::contents;
using temporary_folder::Folder;
using Layer = sk::Sharded<sk::TensorList<float>, sk::NoShard>;

/// A model of two tensors and an optimizer whose states are called so.
struct Training {
    explicit Training(sk::Rank& rank, std::string_view first = "first", std::string_view second = "second")
        : layer(rank, "layer", sk::TensorList<float>{{"a", {3, 5}}, {"b", {3, 5}}}),
          optimizer(named_states::optimizer(sk::Model{layer}, first, second)),
          state(sk::Model{layer}, optimizer) {
        layer.initialize([](std::string_view, std::string_view name, std::uint64_t i) {
            return static_cast<double>(i) + (name == "a" ? 0 : 100);
        });
    }
    /// Every state has other values than the other one, and than zero.
    void step() {
        sk::Model model{layer};
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        for (std::size_t p = 0; p < 2; ++p) {
            auto view = gradients.view(p);
            for (std::size_t i = 0; i < view.size(); ++i) { view.data()[i] = static_cast<float>(i % 3 + p + 1); }
        }
        accumulation.add(std::move(gradients));
        optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
    }
    /// Of what the optimizer keeps, in its order.
    std::vector<float> states() {
        std::vector<float> values;
        for (const sk::ShardInfo& info : optimizer.shards()) {
            const auto* const data = static_cast<const float*>(info.data);
            values.insert(values.end(), data, data + info.local.size());
        }
        return values;
    }

    Layer layer;
    decltype(named_states::optimizer(sk::Model{std::declval<Layer&>()}, "", "")) optimizer;
    sk::checkpoint::State state;
};

/// Saves step 2 beside a step 1 that only a committed step may remove; what was thrown, or nothing.
std::optional<std::string> save_second(const std::string& run, const sk::checkpoint::SaveOptions& options,
                                       std::string_view first = "first", std::string_view second = "second") {
    std::optional<std::string> thrown;
    fs::remove_all(run);
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        Training good(rank);
        sk::checkpoint::save(rank, run, 1, good.state);
        Training training(rank, first, second);
        training.step();
        sk::checkpoint::SaveOptions with = options;
        with.keep = 1;
        const auto before = contents(run);
        try {
            sk::checkpoint::save(rank, run, 2, training.state, with);
        } catch (const std::invalid_argument& error) {
            thrown = error.what();
            CHECK(contents(run) == before);
            return;
        }
        CHECK_FALSE(fs::exists(run + "/step-00000001"));
        // What was committed is loaded, with the same values.
        Training again(rank, first, second);
        const sk::checkpoint::LoadReport report =
            sk::checkpoint::load(rank, run + "/step-00000002", again.state, {.names = options.names});
        CHECK(report.strings == options.strings);
        CHECK(again.states() == training.states());
        std::vector<float> saved(15);
        std::vector<float> loaded(15);
        for (const char* name : {"a", "b"}) {
            training.layer.read_full(name, saved);
            again.layer.read_full(name, loaded);
            CHECK(saved == loaded);
        }
    });
    return thrown;
}

}  // namespace

TEST_CASE("a text that is not UTF-8 is refused by its key, and the older step stays") {
    const Folder folder;
    const std::string run = folder.file("run");
    for (const std::string text : {"\xff", "a\xc3", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xc0\x80"}) {
        const auto thrown = save_second(run, {.strings = {{"sound", "\xc3\xa9"}, {"host", text}}});
        REQUIRE(thrown);
        CHECK(has(*thrown, "checkpoint::SaveOptions::strings: 'host' has a text that is not UTF-8"));
    }
    const auto key = save_second(run, {.strings = {{"k\xff", "text"}}});
    REQUIRE(key);
    CHECK(has(*key, "' is not UTF-8"));
    // What is UTF-8 comes back, whatever it is: also two of one key.
    CHECK_FALSE(save_second(
        run, {.strings = {{"", ""}, {"k", std::string("\0\n\x7f\"\\", 5)}, {"k", "\xf0\x9f\x98\x80\xc3\xa9"}}}));
}

TEST_CASE("texts that make more of a manifest than a load reads are refused") {
    const Folder folder;
    // The second one is too large with the characters that JSON escapes.
    for (const std::string& text : {std::string(120'000'000, 'x'), std::string(17'000'000, '\x7f')}) {
        if (test_size::reduced() && text[0] == 'x') { continue; }
        const auto thrown = save_second(folder.file("run"), {.strings = {{"log", text}}});
        REQUIRE(thrown);
        CHECK(
            has(*thrown, "names and checkpoint::SaveOptions::strings make a manifest of more than 100000000 bytes"));
    }
}

TEST_CASE("two tensors of one name are refused with both, also where they would lie in different files") {
    const Folder folder;
    for (const std::uint64_t most : {std::uint64_t{1}, std::uint64_t{5'000'000'000}}) {
        CAPTURE(most);
        const auto thrown =
            save_second(folder.file("run"), {.names =
                                                 [](std::string_view, const sk::ParameterRecord& parameter) {
                                                     return sk::checkpoint::stored("weight", parameter.shape);
                                                 },
                                             .max_file_bytes = most});
        REQUIRE(thrown);
        CHECK(has(*thrown, "'layer.a' and 'layer.b' are both stored as 'weight'"));
    }
}

TEST_CASE("an optimizer's states are called as their user likes, or refused where no file can be called so") {
    const Folder folder;
    const std::string run = folder.file("run");
    std::string long_one(200, 'x');
    for (const std::string_view sound :
         {std::string_view("moving-avg-of-grad"), std::string_view("model"), std::string_view("parameter"),
          std::string_view("-of-"), std::string_view("a-1-of-2"), std::string_view(".."),
          std::string_view("exp avg \xc3\xa9\n"), std::string_view("x.safetensors"), std::string_view(long_one)}) {
        CAPTURE(sound);
        for (const std::uint64_t most : {std::uint64_t{1}, std::uint64_t{5'000'000'000}}) {
            CHECK_FALSE(save_second(run, {.max_file_bytes = most}, "first", sound));
        }
    }
    long_one += 'x';
    for (const std::string_view refused :
         {std::string_view("../../escape"), std::string_view("/tmp/escape"), std::string_view("a/b"),
          std::string_view(""), std::string_view("master"), std::string_view("scalars"), std::string_view("a\xff"),
          std::string_view("a\0b", 3), std::string_view("avg-00001-of-00002"), std::string_view(long_one)}) {
        CAPTURE(refused);
        const auto thrown = save_second(run, {}, "first", refused);
        REQUIRE(thrown);
        CHECK(has(*thrown, "' is what the optimizer calls a state, and no name of a file of its own"));
    }
    // Two of one name are two tensors of one name.
    const auto twice = save_second(run, {}, "same", "same");
    REQUIRE(twice);
    CHECK(has(*twice, "'layer.a' and 'layer.a' are both stored as 'layer.a'"));
    // Nothing was written beside the run.
    CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
}

/// Files of which one is not what was written, as a file system gives it back.
class Forgetful : public sk::checkpoint::PosixFiles {
  public:
    explicit Forgetful(std::string ending) : ending_(std::move(ending)) {}
    int open_to_write(const std::string& path, int& file) override {
        const int error = PosixFiles::open_to_write(path, file);
        if (path.ends_with(ending_)) { forgets_ = file; }
        return error;
    }
    int write(int file, std::uint64_t at, std::span<const std::byte> bytes, std::size_t& written) override {
        if (file != forgets_ || at + bytes.size() < 40) { return PosixFiles::write(file, at, bytes, written); }
        std::vector<std::byte> other(bytes.begin(), bytes.end());
        other[other.size() / 2] ^= std::byte{1};
        return PosixFiles::write(file, at, other, written);
    }
    int close(int file) override {
        if (file == forgets_) { forgets_ = -1; }
        return PosixFiles::close(file);
    }

  private:
    std::string ending_;
    int forgets_ = -1;
};

TEST_CASE("a manifest or a header that is not read back as it was written is not committed, and older steps stay") {
    const Folder folder;
    const std::string run = folder.file("run");
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        Training training(rank);
        sk::checkpoint::save(rank, run, 1, training.state);
        const auto before = contents(run);
        for (const char* file : {"manifest.json", "scalars.safetensors", "model.safetensors.index.json"}) {
            CAPTURE(file);
            Forgetful files(file);
            const std::string thrown = thrown_message<sk::FileError>([&] {
                sk::checkpoint::save(rank, run, 2, training.state, {.keep = 1, .max_file_bytes = 1, .files = &files});
            });
            CHECK(has(thrown, file));
            CHECK(contents(run) == before);
        }
    });
}

/// As few files as some systems let a process have open.
class FewOpenFiles {
  public:
    FewOpenFiles() {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        rlimit few = before_;
        few.rlim_cur = 256;
        ::setrlimit(RLIMIT_NOFILE, &few);
    }
    FewOpenFiles(const FewOpenFiles&) = delete;
    FewOpenFiles& operator=(const FewOpenFiles&) = delete;
    ~FewOpenFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }

  private:
    rlimit before_{};
};

TEST_CASE("a state of more files than a process may have open is saved and loaded") {
    const Folder folder;
    const FewOpenFiles few;
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        std::vector<sk::NamedTensor> tensors;
        for (std::size_t i = 0; i < 400; ++i) {
            tensors.emplace_back("t" + std::to_string(i), std::vector{i % 3 + 1});
        }
        Layer layer(rank, "layer", sk::TensorList<float>(tensors));
        layer.initialize([](auto, auto name, std::uint64_t i) { return static_cast<double>(name.size() + i); });
        const sk::Model model{layer};
        files_in_cache::InCache files;
        sk::checkpoint::save(rank, folder.file("run"), 1, sk::checkpoint::State{model},
                             {.max_file_bytes = 1, .files = &files});
        layer.initialize([](auto, auto, std::uint64_t) { return 0.0; });
        sk::checkpoint::load(rank, folder.file("run/step-00000001"), sk::checkpoint::State{model});
        {
            const auto window = layer.unshard();
            CHECK(window.view("t398")[2] == 6);
        }
        CHECK(sk::checkpoint::load_model(rank, folder.file("run/step-00000001"), model).tensors == 400);
    });
}

}  // namespace committed_test
