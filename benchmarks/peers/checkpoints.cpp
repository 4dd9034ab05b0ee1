// SPDX-License-Identifier: Apache-2.0
// checkpoints RANKS ELEMENTS: saves and loads the state of a model that threads share out by full_shard, as its
// input says; "cached" leaves what was written in the page cache, "disk" waits for the disk:
//     save disk|cached state|model FOLDER        {"seconds": from the first rank's begin to the last one's end}
//     begin_save disk|cached state|model FOLDER  the same, until it has returned
//     commit                                     the same, of what was begun
//     load disk|cached state|model STEP          the same
//     again STEP FOLDER                          another model loads the step and saves what it has
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../checkpoints/files.hpp"
#include "../checkpoints/model.hpp"
#include "../checkpoints/options.hpp"
#include "../common/measure.hpp"
#include "console.hpp"

namespace {

using namespace benchmarks;
using namespace benchmarks::peers;
using Model = checkpoints::Model;

/// What all ranks share: the command of whom rank 0 has heard, and the files.
struct Shared {
    Command command;
    std::unique_ptr<checkpoints::CountedFiles> disk = checkpoints::make_files(true);
    std::unique_ptr<checkpoints::CountedFiles> cached = checkpoints::make_files(false);

    checkpoints::CountedFiles& files() const { return one_of("disk", "cached", 1) ? *disk : *cached; }
    /// Whether a word of the command is the first of two.
    bool one_of(const std::string& first, const std::string& second, std::size_t index) const {
        const std::string& word = word_at(command, index);
        if (word != first && word != second) {
            throw std::invalid_argument("command '" + command.front() + "': '" + word + "': expected " + first +
                                        " or " + second);
        }
        return word == first;
    }
};

/// One rank's part. Collective over the world.
class Rank {
  public:
    Rank(shardkit::Rank& rank, Shared& shared, std::uint64_t elements)
        : rank_(rank),
          shared_(shared),
          elements_(elements),
          model_(rank, checkpoints::Options{}.chosen_policy(), elements),
          parameters_(model_.parameters_alone()) {
        model_.begin();
    }

    void serve() {
        if (rank_.rank() == 0) {
            answer(facts({{"ranks", rank_.world_size()}, {"bytes", model_.numel() * 12}, {"pinned", false}}));
        }
        for (;;) {
            meet(rank_);
            if (rank_.rank() == 0) { shared_.command = words_of(read_line()); }
            meet(rank_);
            if (shared_.command.empty() || shared_.command.front() == "quit") { return; }
            const auto seconds = obey();
            if (rank_.rank() == 0) {
                answer(seconds ? nlohmann::json{{"seconds", *seconds}} : nlohmann::json::object());
            }
        }
    }

  private:
    std::optional<double> obey() {
        const Command& command = shared_.command;
        const std::string& verb = command.front();
        if (verb == "save") {
            return world_seconds_of(
                rank_, [&] { shardkit::checkpoint::save(rank_, word_at(command, 3), 1, state(), options()); });
        }
        if (verb == "begin_save" && !pending_) {
            return world_seconds_of(rank_, [&] {
                pending_ = std::make_unique<shardkit::checkpoint::PendingSave>(
                    shardkit::checkpoint::begin_save(rank_, word_at(command, 3), 1, state(), options()));
            });
        }
        if (verb == "commit" && pending_) {
            const auto seconds = world_seconds_of(rank_, [&] { std::move(*pending_).commit(); });
            pending_.reset();
            return seconds;
        }
        if (verb == "load") {
            return world_seconds_of(rank_, [&] {
                shardkit::checkpoint::load(rank_, word_at(command, 3), state(), {.files = &shared_.files()});
            });
        }
        if (verb == "again") {
            Model other(rank_, checkpoints::Options{}.chosen_policy(), elements_);
            shardkit::checkpoint::load(rank_, word_at(command, 1), other.state(), {.files = shared_.cached.get()});
            shardkit::checkpoint::save(rank_, word_at(command, 2), 1, other.state(), {.files = shared_.cached.get()});
            return std::nullopt;
        }
        throw std::invalid_argument("command '" + verb +
                                    "': expected save, begin_save and then commit, load, again or quit");
    }
    shardkit::checkpoint::State& state() {
        return shared_.one_of("state", "model", 2) ? model_.state() : parameters_;
    }
    shardkit::checkpoint::SaveOptions options() const { return {.files = &shared_.files()}; }

    shardkit::Rank& rank_;
    Shared& shared_;
    std::uint64_t elements_;
    Model model_;
    shardkit::checkpoint::State parameters_;
    std::unique_ptr<shardkit::checkpoint::PendingSave> pending_;
};

}  // namespace

int main(int argc, char** argv) {
    return run_program("checkpoints", argc, argv, [](const Command& words) {
        const std::size_t ranks = number_at(words, 1);
        const std::uint64_t elements = number_at(words, 2);
        Shared shared;
        shardkit::threads::run(shardkit::DeviceMesh(ranks),
                               [&](shardkit::Rank& rank) { Rank(rank, shared, elements).serve(); });
    });
}
