// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_plan.hpp>
#include <shardkit/checkpoint/crc32c.hpp>
#include <shardkit/checkpoint/open_file.hpp>
#include <shardkit/checkpoint/saved_group.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/memory/memory_copies.hpp>

namespace shardkit::detail {

/// Returns part `index` of `parts` of a range of a file's bytes, split at page boundaries: without gaps or overlaps,
/// and equal up to a page.
constexpr IndexRange piece_of(IndexRange range, std::size_t index, std::size_t parts) noexcept {
    const auto cut = [&](std::uint64_t number) {
        if (number == 0) { return range.begin; }
        if (number == parts) { return range.end; }
        // A product of a size and a number of ranks might overflow.
        const std::uint64_t at = range.begin + range.size() / parts * number + range.size() % parts * number / parts;
        return std::max(range.begin, at / page_bytes * page_bytes);
    };
    return {cut(index), cut(index + 1)};
}

/// The pieces of a tensor: where its elements lie on this rank, and which of them this rank writes.
class TensorPieces {
  public:
    /// @pre `tensor` is one of `group`
    TensorPieces(const PlannedTensor& tensor, const SavedGroup& group)
        : tensor_(tensor), values_(*group.values[tensor.values]) {}

    /// Returns whether elements that are contiguous in the file are not contiguous for a page in any rank's memory.
    /// Such tensors are read and written as whole tensors. The same on every rank.
    bool scattered() const noexcept {
        return !tensor_.order.plain() ||
               (part().block() != part().numel() && part().block() * size_of(tensor_.type) < page_bytes);
    }
    /// Calls f(bytes of the file, first element in the flat buffer) for each run of elements `flat` of the parameter.
    /// @pre not scattered
    template <class F>
    void for_each_run(IndexRange flat, F&& f) const {
        const IndexRange range = parameter().range;
        const IndexRange held = intersect(range, flat);
        const std::size_t size = size_of(tensor_.type);
        part().for_each_run(held.begin - range.begin, held.end - range.begin,
                            [&](std::size_t first, std::size_t whole, std::size_t count) {
                                const std::uint64_t begin = tensor_.begin + whole * size;
                                f(IndexRange{begin, begin + count * size}, range.begin + first);
                            });
    }
    /// Calls f(bytes of the file, first element in the flat buffer) for each piece that this rank writes. Over all
    /// ranks, each byte of the tensor is in exactly one piece.
    /// @pre not scattered
    template <class F>
    void for_each_piece(F&& f) const {
        const GroupGeometry& geometry = values_.geometry();
        const std::size_t holders = geometry.holders(tensor_.parameter, geometry.table.updated);
        const std::size_t holder = geometry.replica(tensor_.parameter, geometry.table.updated);
        for_each_run(values_.saved, [&](IndexRange run, std::size_t flat) {
            const IndexRange piece = piece_of(run, holder, holders);
            if (!piece.empty()) { f(piece, flat + (piece.begin - run.begin) / size_of(tensor_.type)); }
        });
    }

    const PlacedParameter& parameter() const noexcept { return values_.geometry().parameters[tensor_.parameter]; }
    const TensorPart& part() const noexcept { return parameter().part; }

  private:
    const PlannedTensor& tensor_;
    const SavedValues& values_;
};

/// The number of bytes that are digested and written at a time; they fit a processor's own cache between the two.
inline constexpr std::size_t chunk_bytes = std::size_t{1} << 20U;

/// What one rank writes of a plan, with its digests.
class WriteJobs {
  public:
    /// @param copied  copies here what a step changes, so that a step need not wait
    /// Order: collective over the groups' ranks where tensors are scattered; the host waits.
    WriteJobs(const CheckpointPlan& plan, const SavedState& state, std::size_t rank, std::size_t ranks, bool copied,
              SourceLocation where)
        : plan_(plan), state_(state), rank_(rank), ranks_(ranks) {
        for (std::size_t f = 0; f < plan.files.size(); ++f) {
            const PlannedFile& file = plan.files[f];
            digests_.push_back(List<std::uint32_t>(file.tensors.size()));
            if (rank == 0) {
                add_text(f, 0, file.begin);
                add_text(f, file.begin.size(), file.scalars);
            }
            for (std::size_t t = 0; t < file.tensors.size(); ++t) { add_tensor(f, t, where); }
        }
        if (copied) { copy_state(); }
        gather_scattered(where);
        std::stable_sort(jobs_.begin(), jobs_.end(), [](const Job& a, const Job& b) {
            return a.file != b.file ? a.file < b.file : a.bytes.begin < b.bytes.begin;
        });
    }

    /// Returns whether it reads memory that a step changes.
    bool reads_state() const {
        return std::any_of(jobs_.begin(), jobs_.end(), [](const Job& job) { return job.state; });
    }
    /// Writes everything into the files in `folder`, and makes it durable. @param reserve  rank 0 reserves the space
    /// first
    void run(checkpoint::FileCalls& calls, const std::string& folder, bool reserve, SourceLocation where) {
        if (reserve && rank_ == 0) {
            for (const PlannedFile& file : plan_.files) {
                OpenFile::to_write(calls, concat(folder, "/", file.name), where).reserve(file.bytes);
            }
        }
        // Each rank begins with another file: some file systems let only one rank at a time write to a file.
        const std::size_t files = plan_.files.size();
        for (std::size_t f = 0; f < files; ++f) {
            write_file(calls, folder, (f + rank_ * files / ranks_) % files, where);
        }
    }
    /// Checks that padding, which is in no file, is zero. @throws std::invalid_argument
    static void require_zero(const PlannedTensor& tensor, std::span<const std::byte> padding, SourceLocation where) {
        if (std::all_of(padding.begin(), padding.end(), [](std::byte each) { return each == std::byte{}; })) {
            return;
        }
        throw_invalid_argument(where, "save: '", tensor.name,
                               "' has rows of padding (checkpoint::StoredAs::padding_rows) that are not zero, and no "
                               "file would have them");
    }
    /// Returns this rank's part of the digest of every tensor of every file.
    const List<List<std::uint32_t>>& digests() const noexcept { return digests_; }

  private:
    struct Job {
        std::size_t file = 0;
        IndexRange bytes;
        const std::byte* from = nullptr;
        bool on_host = true;                ///< whether the host can read `from`
        bool state = false;                 ///< whether a step changes `from`
        std::optional<std::size_t> tensor;  ///< index in the file of the tensor whose digest includes them
        std::vector<std::byte> owned;       ///< holds the bytes if `from` points to a copy
    };

    /// A tensor that is gathered as a whole, by its place in the plan.
    struct Scattered {
        std::size_t file;
        std::size_t number;
    };
    const PlannedTensor& planned(const Scattered& of) const { return plan_.files[of.file].tensors[of.number]; }

    void add_text(std::size_t file, std::uint64_t at, const std::string& text) {
        if (text.empty()) { return; }
        const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
        jobs_.push_back({file, {at, at + text.size()}, bytes, true, false, std::nullopt, {}});
    }
    void add_tensor(std::size_t file, std::size_t number, SourceLocation where) {
        const PlannedTensor& tensor = plan_.files[file].tensors[number];
        const SavedGroup& group = *state_.groups[tensor.group];
        const TensorPieces pieces(tensor, group);
        if (pieces.scattered()) {
            scattered_.push_back({file, number});
            return;
        }
        const SavedValues& values = *group.values[tensor.values];
        pieces.for_each_piece([&](IndexRange bytes, std::size_t flat) {
            jobs_.push_back({file, bytes, values.memory(flat), values.on_host, !values.is_copy(), number, {}});
            if (!values.on_host && copies_ == nullptr) { copies_ = group.copies(where); }
        });
    }
    void copy_state() {
        for (Job& job : jobs_) {
            if (!job.state) { continue; }
            std::vector<std::byte> copy(job.bytes.size());
            for_each_chunk(job, [&](std::uint64_t at, std::span<const std::byte> bytes) {
                std::memcpy(copy.data() + at, bytes.data(), bytes.size());
            });
            job.owned = std::move(copy);
            job.on_host = true;
            job.state = false;
        }
        copies_.reset();
    }
    /// Gathers the tensors whose runs are short as a whole; every rank writes a part of each.
    void gather_scattered(SourceLocation where) {
        std::stable_sort(scattered_.begin(), scattered_.end(), [&](const Scattered& a, const Scattered& b) {
            const PlannedTensor& one = planned(a);
            const PlannedTensor& other = planned(b);
            return one.group != other.group ? one.group < other.group : one.values < other.values;
        });
        for (std::size_t next = 0; next < scattered_.size();) {
            const PlannedTensor& one = planned(scattered_[next]);
            List<std::size_t> parameters;
            for (std::size_t at = next; at < scattered_.size(); ++at) {
                const PlannedTensor& its = planned(scattered_[at]);
                if (its.group != one.group || its.values != one.values) { break; }
                parameters.push_back(its.parameter);
            }
            const auto use = [&](std::size_t /*parameter*/, std::span<const std::byte> whole) {
                const auto [file, number] = scattered_[next++];
                const PlannedTensor& tensor = plan_.files[file].tensors[number];
                if (tensor.order.padded()) { require_zero(tensor, whole.subspan(tensor.bytes), where); }
                const IndexRange piece = piece_of({tensor.begin, tensor.begin + tensor.bytes}, rank_, ranks_);
                if (piece.empty()) { return; }
                Job job{file, piece, nullptr, true, false, number, std::vector<std::byte>(piece.size())};
                with_word(size_of(tensor.type), [&](auto element) {
                    const std::size_t size = sizeof element;
                    const std::size_t first = (piece.begin - tensor.begin) / size;
                    tensor.order.for_each(first, piece.size() / size, [&](std::size_t place, std::size_t from) {
                        std::memcpy(job.owned.data() + (place - first) * size, whole.data() + from * size, size);
                    });
                });
                jobs_.push_back(std::move(job));
            };
            const SavedGroup& group = *state_.groups[one.group];
            group.whole(*group.values[one.values], parameters.span(), use, where);
        }
        for (Job& job : jobs_) {
            if (!job.owned.empty()) { job.from = job.owned.data(); }
        }
    }
    /// Calls f(first, bytes) for the job's bytes in order, in memory that the host can read.
    template <class F>
    void for_each_chunk(const Job& job, const F& f) {
        const std::uint64_t size = job.bytes.size();
        const auto chunk = [&](std::uint64_t at, std::size_t most) {
            return std::span(job.from + at, static_cast<std::size_t>(std::min<std::uint64_t>(most, size - at)));
        };
        if (job.on_host) {
            for (std::uint64_t at = 0; at < size; at += chunk_bytes) { f(at, chunk(at, chunk_bytes)); }
            return;
        }
        // The next chunk is copied while one is used.
        const std::size_t most = copies_->capacity();
        std::size_t slot = 0;
        copies_->begin_read(slot, chunk(0, most));
        for (std::uint64_t at = 0; at < size; at += most, slot = (slot + 1) % engine::MemoryCopies::slots) {
            if (size - at > most) {
                copies_->begin_read((slot + 1) % engine::MemoryCopies::slots, chunk(at + most, most));
            }
            f(at, copies_->finish(slot).first(chunk(at, most).size()));
        }
    }
    void write_file(checkpoint::FileCalls& calls, const std::string& folder, std::size_t number,
                    SourceLocation where) {
        std::optional<OpenFile> file;
        for (const Job& job : jobs_) {
            if (job.file != number) { continue; }
            if (!file) { file = OpenFile::to_write(calls, concat(folder, "/", plan_.files[number].name), where); }
            write(*file, job);
        }
        if (file) { file->finish(); }
    }
    void write(const OpenFile& file, const Job& job) {
        std::uint32_t remainder = 0;
        for_each_chunk(job, [&](std::uint64_t at, std::span<const std::byte> bytes) {
            if (job.tensor) { remainder = crc32c::extend(remainder, bytes); }
            file.write(job.bytes.begin + at, bytes);
        });
        if (!job.tensor) { return; }
        const PlannedTensor& tensor = plan_.files[job.file].tensors[*job.tensor];
        digests_[job.file][*job.tensor] ^= crc32c::behind(remainder, tensor.begin + tensor.bytes - job.bytes.end);
    }

    const CheckpointPlan& plan_;
    const SavedState& state_;
    std::size_t rank_;
    std::size_t ranks_;
    List<Job> jobs_;
    std::unique_ptr<engine::MemoryCopies> copies_;  // made if there is a job that the host cannot read
    List<List<std::uint32_t>> digests_;
    List<Scattered> scattered_;
};

}  // namespace shardkit::detail
