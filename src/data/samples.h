// Rows of a fixed length cut or packed from documents: what a training step reads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/token_file.h"

namespace g2::data {

// Target value of a token that takes no part in the loss.
inline constexpr std::int32_t kIgnored = -100;

// N = rows * seq_len tokens on one flat axis.
struct Batch {
  std::int64_t rows = 0;
  std::int64_t seq_len = 0;
  std::vector<std::int32_t> ids;      // [N]
  std::vector<std::int32_t> targets;  // [N] the next token, or kIgnored
  std::vector<std::int32_t>
      positions;                      // [N] from 0 in each row ("stream") or document ("documents")
  std::vector<std::int32_t> lo;       // [N] first token on the flat axis that may be attended to
  std::vector<std::int64_t> samples;  // [rows] which sample each row is, for messages
  std::int64_t valid_targets = 0;

  std::int64_t tokens() const { return rows * seq_len; }
};

enum class Packing {
  kStream,     // rows cut from the concatenated documents; attention crosses them
  kDocuments,  // whole documents packed into rows; attention and positions stay inside each
};

struct SampleOptions {
  std::int64_t seq_len = 0;
  Packing packing = Packing::kStream;
  std::int32_t pad_id = 0;
  std::uint64_t seed = 0;
  bool shuffle = true;
};

struct SampleCounts {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;          // of the documents
  std::int64_t samples = 0;         // rows an epoch
  std::int64_t dropped_tokens = 0;  // "stream": the tail shorter than a row
  std::int64_t cut_documents = 0;   // "documents": longer than a row, cut into pieces
  std::int64_t padding_tokens = 0;  // "documents": an epoch's empty places
};

// The samples of chosen documents of token files. A sample's content and place depend only on the
// documents, the options and the index, never on threads, ranks or what was read before.
class Samples {
 public:
  struct Document {
    std::shared_ptr<const TokenFile> file;
    std::int64_t index = 0;
  };

  Samples(std::vector<Document> documents, const SampleOptions& options);

  const SampleCounts& counts() const { return counts_; }
  std::int64_t size() const { return counts_.samples; }
  std::int64_t epoch_of(std::int64_t cursor) const { return cursor / size(); }

  // Rows for the global sample indices cursor .. cursor + rows - 1: index i is place i mod size()
  // of epoch i / size(), so a batch may wrap into the next epoch.
  void fill(std::int64_t cursor, std::int64_t rows, Batch& batch) const;
  // Rows first .. first + rows - 1 in file order, for evaluation. Requires first + rows <= size().
  void fill_in_order(std::int64_t first, std::int64_t rows, Batch& batch) const;

 private:
  struct Piece {  // tokens [begin, begin + inputs] of a document: inputs, each with a target
    std::int64_t document, begin, inputs;
  };

  void plan_stream();
  void plan_documents();
  void append(std::int64_t sample, Batch& batch) const;
  void append_stream(std::int64_t sample, Batch& batch) const;
  void append_packed(std::int64_t sample, Batch& batch) const;
  void append_padding(std::int64_t count, Batch& batch) const;
  void read_stream(std::int64_t begin,
                   std::vector<std::int32_t>& ids,
                   std::vector<bool>& starts) const;
  static void begin_batch(std::int64_t rows, std::int64_t seq_len, Batch& batch);

  std::vector<Document> documents_;
  SampleOptions options_;
  SampleCounts counts_;
  std::vector<std::int64_t> stream_begin_;  // [documents + 1] of the concatenation
  std::vector<Piece> pieces_;               // grouped by row
  std::vector<std::int64_t> row_begin_;     // [samples + 1] into pieces_
};

}  // namespace g2::data
