// SPDX-License-Identifier: Apache-2.0
// Times a reshard between two meshes of threads or of processes, beside a plain copy of as many bytes, and beside a
// save and a load through files, all in turns.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/all_reduce_value.hpp>
#include <shardkit/reshard.hpp>
#include <shardkit/verbs/broadcast.hpp>
#include <shardkit/verbs/split.hpp>

#include "../../examples/common/processes.hpp"
#include "../../examples/common/read_flag.hpp"
#include "../../examples/common/run_together.hpp"
#include "../checkpoints/files.hpp"
#include "../checkpoints/model.hpp"
#include "../common/json_text.hpp"
#include "../common/machine.hpp"
#include "../common/measure.hpp"
#include "../common/result_files.hpp"
#include "../common/table_text.hpp"
#include "run_on_mpi.hpp"

namespace {

using namespace benchmarks;
namespace sk = shardkit;
namespace fs = std::filesystem;
using Model = checkpoints::Model;

constexpr std::array<std::string_view, 2> engine_names{"threads", "mpi"};
enum class EngineKind : std::uint8_t { threads, mpi };

struct Options {
    EngineKind engine = EngineKind::threads;
    std::size_t from = 2;
    std::size_t to = 1;
    std::uint64_t elements = 20'000'000;
    std::size_t rounds = 15;
    std::size_t staging = std::size_t{16} << 20U;
    std::string folder;
    std::string json;
};

std::optional<Options> parse(int count, const char* const* arguments, std::string& help, std::size_t processes) {
    program::Flags flags("Times a reshard of a state, from FullShard on some ranks to ShardOptimizer on others.",
                         "reshard");
    flags.add("--engine", "NAME", "threads (ranks in this process) or mpi (processes) [threads]");
    flags.add("--from", "N", "ranks of the source [2]");
    flags.add("--to", "N", "ranks of the destination, others [1]");
    flags.add("--elements", "N", "parameters of the model, in fp32 with AdamW: 12 bytes of state each [20000000]");
    flags.add("--rounds", "N", "rounds in which everything has its turn; the median is reported [15]");
    flags.add("--staging", "N", "ReshardOptions::staging_bytes [16777216]");
    flags.add("--folder", "PATH", "where save and load have a folder, in memory for a fair comparison [/dev/shm]");
    flags.add("--json", "FILE", "write the results as one JSON object");
    if (!flags.parse(count, arguments, help)) { return std::nullopt; }
    Options o;
    program::read_name(flags, "--engine", engine_names, o.engine);
    program::read_count(flags, "--from", o.from, 1, 64);
    program::read_count(flags, "--to", o.to, 1, 64);
    if (const std::size_t ranks = o.from + o.to; o.engine == EngineKind::mpi && ranks != processes) {
        throw program::bad_flag(
            "--engine", "mpi",
            std::to_string(ranks) + " processes, as --from and --to say, not " + std::to_string(processes));
    }
    program::read_count(flags, "--elements", o.elements, 1000, 100'000'000'000);
    program::read_count(flags, "--rounds", o.rounds, 1, 10'000);
    program::read_count(flags, "--staging", o.staging, 4096, std::size_t{1} << 40U);
    program::read_file(flags, "--folder", o.folder);
    program::read_file(flags, "--json", o.json);
    if (o.folder.empty()) { o.folder = "/dev/shm"; }
    return o;
}

constexpr std::array<const char*, 4> names{"reshard", "plan and reshard", "plain copy", "save and load"};

struct Measured {
    std::array<Summary, names.size()> seconds;
    std::uint64_t bytes = 0;  ///< received by all ranks
    std::uint64_t rounds = 0;
    std::uint64_t wrong = 0;  ///< bytes that differ from what a load gives
};

/// The values of this rank's shards, one behind the other.
std::vector<std::byte> bytes_of(Model& model) {
    std::vector<std::byte> all;
    for (const sk::ShardInfo& shard : model.shards()) {
        const auto* const first = static_cast<const std::byte*>(shard.data);
        all.insert(all.end(), first, first + shard.range.size() * sk::size_of(shard.type));
    }
    return all;
}

/// A number that all ranks have.
std::uint64_t number_of_run(sk::Rank& rank) {
    std::array<std::uint32_t, 1> number{std::random_device{}()};
    sk::broadcast(rank.world(), std::span<std::uint32_t>(number), 0, rank.compute_stream());
    return number[0];
}

/// What rank 0 has measured, on that rank's process.
Measured run(const Options& o) {
    Measured measured;
    checkpoints::CountedFiles files(false);
    const auto time = [&](sk::Rank& rank) {
        const std::string folder =
            (fs::path(o.folder) / ("shardkit_reshard_" + std::to_string(number_of_run(rank)))).string();
        using Part = sk::MeshRank<sk::DeviceMesh<sk::dynamic>>;
        const bool sends = rank.rank() < o.from;
        const auto ranks = sk::split(rank.world(), sends ? 0 : 1, rank.rank(), sends ? "source" : "destination");
        Part part{sk::DeviceMesh{ranks.size()}, ranks};
        Model model(part, sends ? sk::DynamicPolicy(sk::FullShard{}) : sk::DynamicPolicy(sk::ShardOptimizer{}),
                    o.elements);
        if (sends) { model.begin(); }
        using Side = sk::ReshardSide;
        const Side from = sends ? Side(model.state()) : nullptr;
        const Side to = sends ? nullptr : Side(model.state());
        const sk::ReshardOptions options{.staging_bytes = o.staging};
        const sk::ReshardPlan plan = sk::plan_reshard(rank, from, to, options);
        // What a rank copies lies in memory that another thread has made and touched; a process's own on mpi.
        static std::vector<std::vector<std::byte>> sources;
        if (rank.rank() == 0 || o.engine == EngineKind::mpi) {
            sources.clear();
            for (std::size_t r = 0; r < rank.world_size(); ++r) {
                sources.emplace_back(static_cast<std::size_t>(plan.received(r)), std::byte{1});
            }
        }
        meet(rank);
        std::vector<std::byte> copied(sources[rank.rank()].size(), std::byte{2});
        const auto save_and_load = [&] {
            if (sends) { sk::checkpoint::save(part, folder, 1, model.state(), {.replace = true, .files = &files}); }
            meet(rank);
            if (!sends) { sk::checkpoint::load(part, folder + "/step-00000001", model.state(), {.files = &files}); }
        };
        std::vector<Interval> own;
        for (std::size_t round = 0; round <= o.rounds; ++round) {
            std::array<Interval, names.size()> of_round;
            for (std::size_t turn = 0; turn < names.size(); ++turn) {
                const std::size_t which = (turn + round) % names.size();
                of_round[which] = timed(rank, [&] {
                    if (which == 0) { sk::reshard(rank, plan, from, to); }
                    if (which == 1) { sk::reshard(rank, from, to, options); }
                    if (which == 2 && !copied.empty()) {
                        std::memcpy(copied.data(), sources[rank.rank()].data(), copied.size());
                    }
                    if (which == 3) { save_and_load(); }
                });
            }
            if (round > 0) { own.insert(own.end(), of_round.begin(), of_round.end()); }  // the first one warms up
        }
        sk::reshard(rank, plan, from, to);
        const std::vector<std::byte> here = bytes_of(model);
        save_and_load();
        const std::vector<std::byte> loaded = bytes_of(model);
        std::uint64_t wrong = here.size() == loaded.size() ? 0 : 1;
        for (std::size_t i = 0; i < std::min(here.size(), loaded.size()); ++i) {
            wrong += here[i] == loaded[i] ? 0U : 1U;
        }
        const auto all_wrong = sk::all_reduce_value(rank, static_cast<double>(wrong));
        const std::vector<double> seconds = world_seconds(rank, own);
        if (rank.rank() == 0) {
            fs::remove_all(folder);
            for (std::size_t which = 0; which < names.size(); ++which) {
                std::vector<double> times;
                for (std::size_t at = which; at < seconds.size(); at += names.size()) {
                    times.push_back(seconds[at]);
                }
                measured.seconds[which] = summarise(times);
            }
            measured.bytes = plan.received();
            measured.rounds = plan.rounds();
            measured.wrong = static_cast<std::uint64_t>(all_wrong);
        }
    };
    if (o.engine == EngineKind::mpi) {
        reshard::run_on_mpi(o.from + o.to, time);
    } else {
        sk::threads::run(sk::DeviceMesh(o.from + o.to), time);
    }
    return measured;
}

std::optional<Options> prepare(int count, const char* const* arguments, const program::Processes& processes) {
    std::string help;
    const auto options = parse(count, arguments, help, processes.count());
    if (!options) {
        if (processes.reports()) { print(help); }
        return std::nullopt;
    }
    // The source, full copies, what is copied plainly, and the files.
    require_memory((12.0 * 4 + 4.0 * static_cast<double>(options->to)) * static_cast<double>(options->elements),
                   "--elements");
    return options;
}

void measure_and_report(const Options& options, const program::Processes& processes) {
    if (!processes.reports()) {
        static_cast<void>(run(options));
        return;
    }
    const Machine machine = read_machine();
    const bool threads = options.engine == EngineKind::threads;
    const std::string mpi = processes.mpi_version();
    const ResultFiles files(options.json, "");
    const std::string_view ranks = threads ? "thread" : "process";
    const auto counted_ranks = [&](std::size_t n, const std::string& which) {
        return std::to_string(n) + " " + which + std::string(ranks) + (n == 1 ? "" : threads ? "s" : "es");
    };
    print("# shardkit reshard: " + counted_ranks(options.from, "") + " to " + counted_ranks(options.to, "other ") +
          (mpi.empty() ? "" : ", " + mpi) + "\n" + machine_head(machine, false, options.from + options.to) +
          "# method:  " + counted(options.rounds, "round") +
          ", in each of which everything has its turn; medians\n#\n" +
          program::formatted("# %20s %11s %9s %15s\n", "what", "time (ms)", "GB/s", "of plain copy"));
    const Measured measured = run(options);
    nlohmann::json rows = nlohmann::json::array();
    for (std::size_t which = 0; which < names.size(); ++which) {
        const double seconds = measured.seconds[which].median;
        const double share = measured.seconds[2].median / seconds;
        print(program::formatted("  %20s %11s %9s %15s\n", names[which], four_digits(seconds * 1e3).c_str(),
                                 four_digits(static_cast<double>(measured.bytes) / seconds / 1e9).c_str(),
                                 four_digits(share).c_str()));
        rows.push_back(
            {{"what", names[which]}, {"time_us", to_json(measured.seconds[which])}, {"share_of_copy", share}});
    }
    print("# received " + program::bytes_text(measured.bytes) + " in " + counted(measured.rounds, "exchange") + "; " +
          std::to_string(measured.wrong) + " wrong\n");
    nlohmann::json settings{{"engine", engine_names[static_cast<std::size_t>(options.engine)]},
                            {"from", options.from},
                            {"to", options.to},
                            {"elements", options.elements},
                            {"rounds", options.rounds},
                            {"staging_bytes", options.staging},
                            {"bytes", measured.bytes},
                            {"exchanges", measured.rounds},
                            {"wrong", measured.wrong},
                            {"rows", std::move(rows)}};
    if (!mpi.empty()) { settings["mpi"] = mpi; }
    files.write(result_text("reshard", machine, std::move(settings)));
    if (measured.wrong > 0) {
        throw std::runtime_error("wrong data: " + std::to_string(measured.wrong) + " bytes differ from a load's");
    }
}

}  // namespace

int main(int count, char** arguments) {
    return program::run_together(
        "reshard", count, arguments,
        [&](const program::Processes& processes) { return prepare(count, arguments, processes); },
        measure_and_report);
}
