// SPDX-License-Identifier: Apache-2.0
// What processes do with checkpoints; check_checkpoints.py starts them.
//   matrix FOLDER all|few   every mesh and policy of the job's processes, or some, in four precisions: what one rank
//   has
//                           saved is loaded to the bit, and saved as the same bytes
//   save FOLDER STEP [RANK CALL]   saves a step; rank RANK is killed after its call number CALL that changes a file
//   newest FOLDER           of one process: prints the newest step, all of whose values are that step's
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/backend/self/run.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/core/fp16.hpp>

#include "checkpoint_training.hpp"
#include "killed_files.hpp"
#include "temporary_folder.hpp"

namespace {

using namespace checkpoint_training;
namespace fs = std::filesystem;

template <class T, class Optimizer>
std::size_t check_matrix(const std::string& folder, std::string_view name, std::size_t one_of) {
    const std::size_t world = sk::mpi::Environment::size();
    const std::string first = folder + "/" + std::string(name);
    InCache calls;
    int own = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &own);
    if (own == 0) { save_first<T, Optimizer>(first, calls); }
    MPI_Barrier(MPI_COMM_WORLD);
    std::map<std::string, std::vector<T>> values;
    const sk::safetensors::File model(first + "/step-00000001/model.safetensors");
    for (const auto& tensor : model.tensors()) { values[tensor.name] = model.template read<T>(tensor.name); }
    const auto expected = temporary_folder::contents(first + "/step-00000001");
    std::size_t number = 0;
    std::size_t done = 0;
    for (const Mesh& mesh : meshes(world)) {
        for (const sk::DynamicPolicy& policy : policies(mesh)) {
            if (number++ % one_of != 0) { continue; }
            ++done;
            const std::string next = first + "." + std::to_string(number);
            sk::mpi::run(mesh, [&](auto& rank) {
                load_and_save<T, Optimizer>(rank, policy, values, first, next, calls);
                if (temporary_folder::contents(next + "/step-00000001") != expected) {
                    throw std::logic_error("mesh " + mesh.describe() + ", " + std::string(policy.name()) + ", " +
                                           std::string(name) + ": other bytes than one rank's");
                }
            });
            MPI_Barrier(MPI_COMM_WORLD);
            if (own == 0) { fs::remove_all(next); }
        }
    }
    return done;
}

struct Rows : sk::Param<"rows", float, 3001> {};

void save(const std::string& folder, std::uint64_t step, std::optional<std::size_t> victim, std::size_t call) {
    sk::mpi::run(sk::DeviceMesh(sk::mpi::Environment::size()), [&](auto& rank) {
        sk::Sharded<Rows, sk::FullShard> layer(rank, "layer");
        layer.initialize([&](std::string_view, std::string_view, std::uint64_t i) {
            return static_cast<double>(10000 * step + i);
        });
        sk::checkpoint::PosixFiles sound;
        killed_files::Killed killed(call);
        sk::checkpoint::FileCalls& files =
            victim == rank.rank() ? static_cast<sk::checkpoint::FileCalls&>(killed) : sound;
        sk::checkpoint::save(rank, folder, step, sk::checkpoint::State{sk::Model{layer}}, {.files = &files});
    });
}

void print_newest(const std::string& folder) {
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        const auto found = sk::checkpoint::latest(rank, folder);
        if (!found) { throw std::logic_error("no step is there"); }
        sk::Sharded<Rows, sk::FullShard> layer(rank, "layer");
        sk::checkpoint::load(rank, found->path, sk::checkpoint::State{sk::Model{layer}});
        std::vector<float> values(3001);
        layer.read_full(Rows{}, values);
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (values[i] != static_cast<float>(10000 * found->step + i)) {
                throw std::logic_error("a value of another step");
            }
        }
        std::printf("%llu\n", static_cast<unsigned long long>(found->step));
    });
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    try {
        if (arguments.size() == 2 && arguments[0] == "newest") {
            print_newest(arguments[1]);
            return 0;
        }
        const sk::mpi::Environment environment;
        if (arguments.size() == 3 && arguments[0] == "matrix") {
            const std::size_t one_of = arguments[2] == "all" ? 1 : 5;
            const std::size_t done = check_matrix<float, WithAdamW>(arguments[1], "fp32", one_of) +
                                     check_matrix<sk::bf16, WithAdamW>(arguments[1], "bf16", one_of) +
                                     check_matrix<sk::fp16, WithAdamW>(arguments[1], "fp16", one_of) +
                                     check_matrix<double, WithPlainSgd>(arguments[1], "fp64", one_of);
            int own = 0;
            MPI_Comm_rank(MPI_COMM_WORLD, &own);
            if (own == 0) { std::printf("%zu\n", done); }
            return 0;
        }
        if (arguments.size() >= 3 && arguments[0] == "save") {
            const bool killed = arguments.size() == 5;
            save(arguments[1], std::stoull(arguments[2]),
                 killed ? std::optional<std::size_t>(std::stoull(arguments[3])) : std::nullopt,
                 killed ? std::stoull(arguments[4]) : 0);
            return 0;
        }
    } catch (const std::exception& error) { std::fprintf(stderr, "%s\n", error.what()); }
    return 1;
}
