// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_plan.hpp>
#include <shardkit/checkpoint/crc32c.hpp>
#include <shardkit/checkpoint/open_file.hpp>
#include <shardkit/checkpoint/tensor_pieces.hpp>

namespace shardkit::detail {

/// Bytes that are digested and written at a time: what a processor's own cache keeps between the two.
inline constexpr std::size_t chunk_bytes = 262144;

/// What moves elements of that many bytes between a parameter's order and a file's.
template <class F>
void with_element_size(std::size_t size, F&& f) {
    if (size == 2) {
        f(std::uint16_t{});
    } else if (size == 4) {
        f(std::uint32_t{});
    } else {
        f(std::uint64_t{});
    }
}

/// What one rank writes of a plan, and the digests of it.
class WriteJobs {
  public:
    /// @param copy_host, copy_device  what is copied first where it lies in the host's memory, or a device's
    /// Order: collective over the groups' ranks where tensors are scattered; the host waits.
    WriteJobs(const CheckpointPlan& plan, const SavedState& state, std::size_t rank, std::size_t ranks,
              bool copy_host, bool copy_device, SourceLocation where)
        : plan_(plan), state_(state), rank_(rank), ranks_(ranks) {
        for (std::size_t f = 0; f < plan.files.size(); ++f) {
            const PlannedFile& file = plan.files[f];
            digests_.emplace_back(file.tensors.size(), 0);
            if (rank == 0) {
                add_text(f, 0, file.begin);
                add_text(f, file.begin.size(), file.scalars);
            }
            for (std::size_t t = 0; t < file.tensors.size(); ++t) { add_tensor(f, t, copy_host, copy_device); }
        }
        gather_scattered(where);
        std::stable_sort(jobs_.begin(), jobs_.end(), [](const Job& a, const Job& b) {
            return std::pair(a.file, a.bytes.begin) < std::pair(b.file, b.bytes.begin);
        });
    }

    /// Whether memory is read that a step changes.
    bool reads_state() const {
        return std::any_of(jobs_.begin(), jobs_.end(),
                           [](const Job& job) { return job.values != nullptr && job.owned.empty(); });
    }
    /// Writes everything into the files in `folder`, and to the disk.
    void run(FileCalls& calls, const std::string& folder, SourceLocation where) {
        std::vector<std::byte> staged;
        for (std::size_t begin = 0; begin < jobs_.size();) {
            const std::size_t number = jobs_[begin].file;
            OpenFile file = OpenFile::to_write(calls, concat(folder, "/", plan_.files[number].name), where);
            for (; begin < jobs_.size() && jobs_[begin].file == number; ++begin) {
                write(file, jobs_[begin], staged);
            }
            file.finish();
        }
    }
    /// Of every tensor of every file, this rank's part.
    const std::vector<std::vector<std::uint32_t>>& digests() const noexcept { return digests_; }

  private:
    struct Job {
        std::size_t file = 0;
        FileRange bytes;
        const std::byte* from = nullptr;      ///< the host's memory; null: `values`, from element `flat` on
        const SavedValues* values = nullptr;  ///< what a step changes
        std::size_t flat = 0;
        std::optional<std::size_t> tensor;  ///< of the file, in whose digest they count
        std::vector<std::byte> owned;       ///< where `from` leads to a copy
    };

    void add_text(std::size_t file, std::uint64_t at, const std::string& text) {
        if (text.empty()) { return; }
        const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
        jobs_.push_back({file, {at, at + text.size()}, bytes, nullptr, 0, std::nullopt, {}});
    }
    void add_tensor(std::size_t file, std::size_t number, bool copy_host, bool copy_device) {
        const PlannedTensor& tensor = plan_.files[file].tensors[number];
        const SavedGroup& group = *state_.groups[tensor.group];
        const TensorPieces pieces(tensor, group);
        if (pieces.scattered()) {
            scattered_[{tensor.group, tensor.values}].emplace_back(file, number);
            return;
        }
        const SavedValues& values = *group.values[tensor.values];
        pieces.for_each_piece([&](FileRange bytes, std::size_t flat) {
            Job job{file, bytes, values.host(flat), &values, flat, number, {}};
            if (job.from == nullptr ? copy_device : copy_host) {
                job.owned.resize(bytes.size());
                copy_out(job, 0, job.owned);
                job.from = job.owned.data();
            }
            jobs_.push_back(std::move(job));
        });
    }
    /// Tensors whose runs are short: gathered as a whole, a part of each written by every rank.
    void gather_scattered(SourceLocation where) {
        for (const auto& scattered : scattered_) {
            const auto& tensors = scattered.second;
            std::vector<std::size_t> parameters;
            for (const auto& [file, number] : tensors) {
                parameters.push_back(plan_.files[file].tensors[number].parameter);
            }
            std::size_t next = 0;
            const auto use = [&](std::size_t /*parameter*/, std::span<const std::byte> whole) {
                const auto [file, number] = tensors[next++];
                const PlannedTensor& tensor = plan_.files[file].tensors[number];
                const FileRange piece = piece_of({tensor.begin, tensor.begin + tensor.bytes}, rank_, ranks_);
                if (piece.empty()) { return; }
                Job job{file, piece, nullptr, nullptr, 0, number, std::vector<std::byte>(piece.size())};
                with_element_size(size_of(tensor.type), [&](auto element) {
                    const std::size_t size = sizeof element;
                    const std::size_t first = (piece.begin - tensor.begin) / size;
                    tensor.order.for_each(first, piece.size() / size, [&](std::size_t place, std::size_t from) {
                        std::memcpy(job.owned.data() + (place - first) * size, whole.data() + from * size, size);
                    });
                });
                job.from = job.owned.data();
                jobs_.push_back(std::move(job));
            };
            state_.groups[scattered.first.first]->values[scattered.first.second]->whole(parameters, use, where);
        }
        for (Job& job : jobs_) {
            if (!job.owned.empty()) { job.from = job.owned.data(); }
        }
    }
    static void copy_out(const Job& job, std::uint64_t at, std::span<std::byte> to) {
        if (job.from != nullptr) {
            std::memcpy(to.data(), job.from + at, to.size());
            return;
        }
        const std::size_t size = size_of(job.values->type);
        const std::size_t first = job.flat + at / size;
        job.values->copy_out({first, first + to.size() / size}, to.data());
    }
    void write(const OpenFile& file, const Job& job, std::vector<std::byte>& staged) {
        std::uint32_t remainder = 0;
        for (std::uint64_t at = 0; at < job.bytes.size();) {
            const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(chunk_bytes, job.bytes.size() - at));
            std::span<const std::byte> bytes(job.from + at, count);
            if (job.from == nullptr) {
                staged.resize(count);
                copy_out(job, at, staged);
                bytes = staged;
            }
            if (job.tensor) { remainder = crc32c::extend(remainder, bytes); }
            file.write(job.bytes.begin + at, bytes);
            at += count;
        }
        if (!job.tensor) { return; }
        const PlannedTensor& tensor = plan_.files[job.file].tensors[*job.tensor];
        digests_[job.file][*job.tensor] ^= crc32c::behind(remainder, tensor.begin + tensor.bytes - job.bytes.end);
    }

    const CheckpointPlan& plan_;
    const SavedState& state_;
    std::size_t rank_;
    std::size_t ranks_;
    std::vector<Job> jobs_;
    std::vector<std::vector<std::uint32_t>> digests_;
    std::map<std::pair<std::size_t, std::size_t>, std::vector<std::pair<std::size_t, std::size_t>>> scattered_;
};

}  // namespace shardkit::detail
