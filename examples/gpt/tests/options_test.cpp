// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "problem.hpp"
#include "report.hpp"
#include "size_text.hpp"

#include <support/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace options_test {

namespace {

using Catch::Matchers::ContainsSubstring;

gpt::options parse(std::vector<const char*> words)
{
  return gpt::parse_options(static_cast<int>(words.size()), words.data());
}

/// The sentence of a refusal, or nothing where all options are accepted.
std::string refusal(const std::vector<const char*>& words)
{
  try {
    (void)parse(words);
  } catch (const gpt::problem& refused) {
    return refused.what();
  }
  return {};
}

}  // namespace

TEST_CASE("an empty command line is the demonstration", "[gpt]")
{
  const gpt::options chosen = parse({});
  CHECK(!chosen.device_memory);
  CHECK(chosen.size.layers == 6);
  CHECK(chosen.eviction.chosen() == "belady");
  CHECK(chosen.layout.chosen() == "size_class_layout");
  CHECK(chosen.placement.chosen() == "optimizer_on_host");
  CHECK(chosen.transfer.chosen() == "lookahead");
  CHECK(chosen.precision == chunkmem::dtype::float32);
  CHECK(chosen.gradient == gpt::gradient_choice::separate);
  CHECK(chosen.size.micro_batches == 1);
  CHECK(chosen.clip == 0.0f);
  CHECK(!chosen.threads);
  CHECK(!chosen.verify);
}

TEST_CASE("every option of the command line is read", "[gpt]")
{
  const gpt::options chosen = parse({"--device-memory",
                                     "1.5MiB",
                                     "--host-memory=2GiB",
                                     "--layers",
                                     "2",
                                     "--width",
                                     "64",
                                     "--heads",
                                     "4",
                                     "--context",
                                     "32",
                                     "--steps",
                                     "3",
                                     "--batch",
                                     "1",
                                     "--eviction",
                                     "lru",
                                     "--transfer",
                                     "no_prefetch",
                                     "--chunk-bytes",
                                     "512KiB",
                                     "--trace",
                                     "t.json",
                                     "--report",
                                     "r.json",
                                     "--verify",
                                     "--seed",
                                     "9",
                                     "--text",
                                     "a",
                                     "--sample",
                                     "0"});
  CHECK(chosen.device_memory->count() == 1572864);
  CHECK(chosen.host_memory->count() == std::uint64_t{2} << 30);
  CHECK(chosen.chunk_bytes->count() == 524288);
  CHECK(chosen.size.width == 64);
  CHECK(chosen.size.context == 32);
  CHECK(chosen.steps == 3);
  CHECK(chosen.eviction.chosen() == "lru");
  CHECK(chosen.transfer.chosen() == "no_prefetch");
  CHECK(chosen.trace->string() == "t.json");
  CHECK(chosen.seed == 9);
  CHECK(chosen.sample == 0);
  CHECK(chosen.verify);
}

TEST_CASE("precision, gradients and the update are read", "[gpt]")
{
  const gpt::options half = parse({"--precision", "bf16", "--gradient", "in_place", "--clip", "0.5", "--threads", "3"});
  CHECK(half.precision == chunkmem::dtype::bfloat16);
  CHECK(half.gradient == gpt::gradient_choice::in_place);
  CHECK(half.clip == 0.5f);
  CHECK(half.threads == 3u);
  CHECK(half.when == gpt::update_time::at_once);
  CHECK(parse({"--update", "late"}).when == gpt::update_time::late);
  CHECK(parse({"--update", "early", "--ranks", "2"}).when == gpt::update_time::early);
  const gpt::options measured = parse({"--update", "measured", "--shard", "3"});
  CHECK(measured.when == gpt::update_time::measured);
  CHECK(measured.placement.chosen() == "update_share");
  CHECK_THAT(refusal({"--update", "measured", "--placement", "optimizer_on_host"}),
             ContainsSubstring("finds the place"));
  CHECK_THAT(refusal({"--update", "measured", "--device-share", "0.5"}),
             ContainsSubstring("update_share (leave it out)"));
  CHECK_THAT(refusal({"--update", "measured", "--shard", "3", "--forecast", "cluster.json"}),
             ContainsSubstring("where no step is measured"));
  CHECK_THAT(refusal({"--update", "late", "--stages", "2"}),
             ContainsSubstring("--update cannot be combined with --stages"));
  const gpt::options sums = parse({"--precision=fp16", "--gradient=separate", "--accumulate=4", "--export=e.json"});
  CHECK(sums.precision == chunkmem::dtype::float16);
  CHECK(sums.gradient == gpt::gradient_choice::separate);
  CHECK(sums.size.micro_batches == 4);
  CHECK(sums.size.tokens_per_step() == 4 * 4 * 128);
  CHECK(sums.exported->string() == "e.json");
}

TEST_CASE("every policy is chosen by its name", "[gpt]")
{
  for (const char* name : {"belady", "lru", "fifo", "list_order", "cost_aware"})
    CHECK(parse({"--eviction", name}).eviction.chosen() == name);
  for (const char* name : {"size_class", "best_fit", "append"})
    CHECK(parse({"--layout", name}).layout.chosen() == std::string{name} + "_layout");
  for (const char* name : {"optimizer_on_host", "device_margin", "fixed_split", "update_share"})
    CHECK(parse({"--placement", name}).placement.chosen() == name);
  CHECK(parse({"--placement", "host_first"}).placement.chosen() == "optimizer_on_host");  // the former name
  for (const char* name : {"lookahead", "no_prefetch", "planned"})
    CHECK(parse({"--transfer", name}).transfer.chosen() == name);
}

TEST_CASE("a share of the device is read where a placement has one", "[gpt]")
{
  const auto on_device = [](const gpt::options& chosen) {
    const std::vector<chunkmem::bytes> states(8, chunkmem::bytes{100});
    std::vector<chunkmem::tier> tiers(8);
    chosen.placement.assign({chunkmem::bytes{10'000}, {}, {}, true, states}, tiers);
    return std::count(tiers.begin(), tiers.end(), chunkmem::tier::device);
  };
  CHECK(on_device(parse({"--placement", "fixed_split"})) == 4);
  CHECK(on_device(parse({"--placement", "fixed_split", "--device-share", "0.25"})) == 2);
  CHECK(on_device(parse({"--placement", "update_share", "--device-share", "0.25"})) == 2);
  CHECK_THAT(refusal({"--device-share", "0.25"}),
             ContainsSubstring("--placement fixed_split or update_share (leave it out)"));
  CHECK_THAT(refusal({"--placement", "fixed_split", "--device-share", "2"}), ContainsSubstring("from 0 to 1"));
}

TEST_CASE("the choice of activations is read, and refused over ranks where a planner would be asked", "[gpt]")
{
  using enum gpt::activation_mode;
  CHECK(parse({}).activations == swap);
  CHECK(parse({"--activations", "keep"}).activations == keep);
  CHECK(parse({"--activations", "recompute", "--ranks", "2"}).activations == recompute);
  CHECK(parse({"--activations", "karma"}).activations == karma);
  CHECK(parse({"--activations", "planned"}).activations == planned);
  CHECK_THAT(refusal({"--activations", "drop"}), ContainsSubstring("swap, keep, recompute, karma or planned"));
  CHECK(parse({"--activations", "karma", "--ranks", "2"}).activations == karma);
  CHECK(parse({"--activations", "sample=0.25"}).activations == sample);
  CHECK(parse({"--activations", "sample=0.25"}).sample_ratio == 0.25);
  CHECK(parse({"--activations", "keep"}).sample_ratio == 0);
  for (const char* const wrong : {"sample=0", "sample=1.5", "sample=x", "sample=nan"})
    CHECK_THAT(refusal({"--activations", wrong}), ContainsSubstring("above 0 and at most 1"));
  CHECK(!refusal({"--activations", "sample="}).empty());
  for (const char* const how : {"sample=0.3", "sample=auto"})
    CHECK_THAT(refusal({"--activations", how, "--stages", "2"}), ContainsSubstring("choose swap"));
  CHECK_THAT(refusal({"--activations", "sample=auto", "--ranks", "2"}), ContainsSubstring("choose swap"));
  CHECK(parse({"--activations", "sample=0.3", "--ranks", "2"}).sample_ratio > 0.29);
}

TEST_CASE("ratios of sampled inputs are measured or read, and their options go with nothing else", "[gpt]")
{
  CHECK(parse({"--activations", "sample=0.3"}).sample_ratio == 0.3);
  const gpt::options measured = parse({"--activations", "sample=auto"});
  CHECK(measured.measures_ratios);
  CHECK(measured.sample_ratio == 1);
  CHECK((!measured.room.size && !measured.room.share && measured.noise == 0));
  const gpt::options file = parse({"--activations", "sample=" __FILE__, "--noise", "5"});
  CHECK(file.sample_file == __FILE__);
  CHECK((!file.measures_ratios && file.noise == 5));
  CHECK(parse({"--activations", "sample=auto", "--sample-room", "12.5%"}).room.share == 0.125);
  CHECK(parse({"--activations", "sample=auto", "--sample-room", "3MiB"}).room.size == chunkmem::bytes{3U << 20U});
  CHECK(parse({"--activations", "sample=auto", "--sample-file", "a.txt"}).ratio_file == "a.txt");
  for (const char* const wrong : {"0%", "101%", "%", "x%", "-1%"})
    CHECK_THAT(refusal({"--activations", "sample=auto", "--sample-room", wrong}), ContainsSubstring("before its %"));
  CHECK_THAT(refusal({"--activations", "sample=auto", "--sample-room", "5"}), ContainsSubstring("has no unit"));
  for (const char* const option : {"--sample-room", "--sample-file"}) {
    CHECK_THAT(refusal({option, "1KiB"}), ContainsSubstring("needs --activations sample=auto"));
    CHECK_THAT(refusal({"--activations", "sample=0.3", option, "1KiB"}),
               ContainsSubstring("needs --activations sample=auto"));
  }
  CHECK_THAT(refusal({"--noise", "5"}), ContainsSubstring("needs --activations sample="));
  CHECK_THAT(refusal({"--activations", "sample=0.3", "--noise", "0"}), ContainsSubstring("from 1 to"));
  for (const char* const option : {"--ranks", "--stages"})
    CHECK(!refusal({"--activations", "sample=0.3", "--noise", "5", option, "2"}).empty());
  CHECK_THAT(refusal({"--activations", "sample=" __FILE__, "--ranks", "2"}), ContainsSubstring("is for one rank"));
}

TEST_CASE("what tunes a model is read, and refused where it has no use", "[gpt]")
{
  CHECK((parse({}).size.adapter_rank == 0 && parse({}).size.mlp == gpt::nonlinearity::gelu));
  CHECK((parse({}).windows == gpt::window_choice::random && !parse({}).runs_qkv_again && !parse({}).init));
  const gpt::options tuned = parse({"--mlp", "relu", "--windows", "fixed", "--recompute", "qkv", "--lora", "8",
                                    "--init", "x", "--export-weights", "y", "--activations", "sample=0.3"});
  CHECK((tuned.size.mlp == gpt::nonlinearity::relu && tuned.size.adapter_rank == 8 && tuned.runs_qkv_again));
  CHECK((tuned.windows == gpt::window_choice::fixed && tuned.init == "x" && tuned.export_weights == "y"));
  CHECK_THAT(refusal({"--mlp", "swish"}), ContainsSubstring("choose gelu or relu"));
  CHECK_THAT(refusal({"--windows", "sliding"}), ContainsSubstring("choose random or fixed"));
  CHECK_THAT(refusal({"--lora", "0"}), ContainsSubstring("--lora"));
  CHECK_THAT(refusal({"--lora", "4"}), ContainsSubstring("add --init"));
  CHECK_THAT(refusal({"--lora", "4", "--init", "y", "--export", "x"}), ContainsSubstring("leave it out"));
  CHECK_THAT(refusal({"--export-weights", "x", "--ranks", "2"}), ContainsSubstring("for one rank"));
  for (const char* const choice : {"keep", "recompute", "karma"})
    CHECK_THAT(refusal({"--recompute", "qkv", "--activations", choice}), ContainsSubstring("swap or sample"));
  for (const char* const option : {"--recompute", "--mlp", "--windows", "--init", "--lora", "--export-weights"})
    CHECK_THAT(refusal({"--stages", "2", option,
                        option == std::string{"--recompute"} ? "qkv"
                        : option == std::string{"--mlp"}     ? "relu"
                        : option == std::string{"--windows"} ? "fixed"
                                                             : "2"}),
               ContainsSubstring(option));
}

TEST_CASE("the program of the GPU computes activations again by default, and tells planners its rates", "[gpt]")
{
  using enum gpt::activation_mode;
  const auto parse_cuda = [](std::vector<const char*> words) {
    return gpt::parse_options(static_cast<int>(words.size()), words.data(), gpt::program::gpt_cuda);
  };
  const auto refused = [&](std::vector<const char*> words, const char* why) {
    CHECK_THROWS_WITH(parse_cuda(std::move(words)), ContainsSubstring(why));
  };
  CHECK(parse_cuda({}).activations == recompute);
  CHECK(parse_cuda({"--activations", "swap"}).activations == swap);
  CHECK(parse_cuda({"--activations", "sample=0.5"}).activations == sample);
  CHECK(parse_cuda({"--activations", "sample=0.5"}).sample_ratio == 0.5);
  refused({"--activations", "sample=0.5", "--shard", "3"}, "--activations sample=0.5 is for one rank");
  const gpt::options rated =
      parse_cuda({"--activations", "planned", "--device-rate", "2e14", "--link-rate", "50000000000"});
  CHECK(rated.activations == planned);
  CHECK((rated.device_rate > 1.99e14 && rated.device_rate < 2.01e14));
  CHECK((rated.link_rate > 4.99e10 && rated.link_rate < 5.01e10));
  refused({"--activations", "drop"}, "'drop' is unknown: choose swap, keep, recompute, karma or planned");
  refused({"--activations", "planned", "--shard", "3"}, "--activations planned is for one rank (choose swap");
  refused({"--activations", "swap", "--link-rate", "1e10"}, "needs --activations karma or planned");
  refused({"--device-rate", "1e14"}, "needs --activations karma or planned");
  refused({"--activations", "karma", "--device-rate", "0"}, "--device-rate '0' is not a number from 1 to 1e30");
  CHECK_THAT(refusal({"--link-rate", "1e10"}), ContainsSubstring("--help"));
}

TEST_CASE("each option has a group and a type in the help, which ends with examples", "[gpt]")
{
  for (const gpt::program whose : {gpt::program::gpt, gpt::program::gpt_cuda}) {
    const std::string help = gpt::help_text(whose);
    CHECK(help.find("\nOptions:") == std::string::npos);
    CHECK(help.find(" TEXT ") == std::string::npos);
    for (const char* words : {"\nMemory:\n", "--chunk-bytes SIZE ", "--metrics FILE ", "--resume FOLDER ",
                              "\nCheckpoints:\n", "\nExamples:\n"})
      CHECK_THAT(help, ContainsSubstring(words));
  }
}

TEST_CASE("a version is asked for without other options, and metrics ask for a norm on the CPU", "[gpt]")
{
  CHECK(parse({"--version"}).common.version);
  CHECK(parse({"--help"}).common.help);
  CHECK(parse({"--json"}).common.json);
  CHECK(refusal({"--json=3"}) == "--json takes no value (see --help)");
  const gpt::options measured = parse({"--metrics", "lines.jsonl"});
  CHECK(measured.metrics == "lines.jsonl");
  CHECK(gpt::clip_of(measured) == std::numeric_limits<float>::max());
  CHECK(gpt::clip_of(parse({"--metrics", "lines.jsonl", "--clip", "2"})) == 2.0f);
  CHECK(gpt::clip_of(parse({})) == 0.0f);
  const gpt::options on_gpu =
      gpt::parse_options(2, std::vector<const char*>{"--metrics", "x"}.data(), gpt::program::gpt_cuda);
  CHECK(gpt::clip_of(on_gpu) == 0.0f);
  CHECK_THAT(refusal({"--write-model", "m.json", "--metrics", "x"}),
             ContainsSubstring("--metrics cannot be combined with"));
}

TEST_CASE("the file of metrics is no other file of the run", "[gpt]")
{
  for (const char* other : {"--report", "--trace", "--export"})
    for (const std::string& name : {std::string{"./out.json"}, std::filesystem::absolute("out.json").string()})
      CHECK_THAT(refusal({"--metrics", "out.json", other, name.c_str()}), ContainsSubstring("--metrics 'out.json' is"));
  CHECK(parse({"--metrics", "lines.jsonl", "--report", "out.json"}).report == "out.json");
}

TEST_CASE("a report names the program that trained", "[gpt]")
{
  std::ostringstream text;
  gpt::write_report(text, gpt::parse_options(0, nullptr, gpt::program::gpt_cuda), {}, "{}");
  CHECK_THAT(text.str(), ContainsSubstring("\"program\": \"gpt_cuda\",\n\"version\": \""));
}

TEST_CASE("a forecast is for ranks that train, and has a rate of its own", "[gpt]")
{
  const gpt::options chosen = parse({"--shard", "2", "--forecast", "cluster.json", "--device-rate", "2e9"});
  CHECK(chosen.forecast == "cluster.json");
  REQUIRE(chosen.computed_per_second.has_value());
  CHECK(*chosen.computed_per_second > 1.99e9);
  CHECK(*chosen.computed_per_second < 2.01e9);
  CHECK_FALSE(parse({"--shard", "2", "--forecast", "cluster.json"}).computed_per_second.has_value());
  const auto refused = [](const std::vector<const char*>& words, const char* why) {
    CHECK_THAT(refusal(words), ContainsSubstring(why));
  };
  refused({"--forecast", "cluster.json"}, "is for a training over ranks (add --shard 3, or 0 to 2)");
  refused({"--device-rate", "2e9"}, "--device-rate needs --forecast");
  refused({"--shard", "2", "--forecast", "cluster.json", "--ranks", "4"}, "--ranks cannot be combined with --forecast");
  refused({"--shard", "2", "--forecast", "cluster.json", "--accumulate", "2"}, "--accumulate cannot be combined with");
  refused({"--shard", "2", "--forecast", "cluster.json", "--activations", "sample=0.5"}, "no rows to sample");
  refused({"--shard", "2", "--forecast", "cluster.json", "--verify"}, "--verify cannot be combined with --forecast");
  refused({"--shard", "2", "--forecast", "cluster.json", "--device-rate", "0"}, "is not a number from 1 to 1e30");
}

TEST_CASE("gradients in place are refused where they cannot be", "[gpt]")
{
  CHECK_THAT(refusal({"--gradient", "in_place"}), ContainsSubstring("weights of 16 bits"));
  CHECK_THAT(refusal({"--gradient", "in_place", "--precision", "fp32"}),
             ContainsSubstring("add --precision bf16 or fp16"));
  const std::string sums = refusal({"--gradient", "in_place", "--precision", "bf16", "--accumulate", "2"});
  CHECK_THAT(sums, ContainsSubstring("--accumulate 2") && ContainsSubstring("choose --gradient separate"));
  CHECK(sums.find('\n') == std::string::npos);
  CHECK(refusal({"--gradient", "in_place", "--precision", "fp16", "--accumulate", "1"}).empty());
}

TEST_CASE("sizes are read with their units", "[gpt]")
{
  CHECK(gpt::parse_size("--x", "1B").count() == 1);
  CHECK(gpt::parse_size("--x", "0.5KiB").count() == 512);
  CHECK(gpt::parse_size("--x", "64MiB").count() == 67108864);
  CHECK(gpt::size_text(chunkmem::bytes{67108864}) == "64.00 MiB");
  CHECK(gpt::size_text(chunkmem::bytes{1}) == "1 B");
}

TEST_CASE("a bad size is one sentence", "[gpt]")
{
  for (const char* bad : {"-1MiB", "0B", "0.1B", "64", "MiB", "64MB", "lots", "nan", "infGiB", "1e400GiB",
                          "99999999TiB", "1 MiB", "64MiBs", "--1B"}) {
    INFO(bad);
    for (const char* option : {"--device-memory", "--host-memory", "--chunk-bytes"}) {
      const std::string sentence = refusal({option, bad});
      CHECK_THAT(sentence, ContainsSubstring(option));
      CHECK(sentence.find('\n') == std::string::npos);
    }
  }
  CHECK_THAT(refusal({"--device-memory=-1MiB"}), ContainsSubstring("negative"));
  CHECK_THAT(refusal({"--chunk-bytes", "1000B"}), ContainsSubstring("multiple of 256B"));
}

TEST_CASE("a bad number is one sentence with its range", "[gpt]")
{
  for (const char* option : {"--layers", "--width", "--heads", "--context", "--batch", "--steps", "--seed", "--sample",
                             "--accumulate", "--threads"}) {
    for (const char* bad : {"-3", "x", "1.5", "99999999999999999999999", "1x"}) {
      INFO(option << ' ' << bad);
      const std::string sentence = refusal({option, bad});
      CHECK_THAT(sentence, ContainsSubstring(option));
      CHECK(sentence.find('\n') == std::string::npos);
    }
  }
  CHECK_THAT(refusal({"--layers", "0"}), ContainsSubstring("from 1 to"));
  CHECK_THAT(refusal({"--learning-rate", "-1"}), ContainsSubstring("above 0"));
  CHECK_THAT(refusal({"--accumulate", "0"}), ContainsSubstring("from 1 to 4096"));
  CHECK_THAT(refusal({"--threads", "0"}), ContainsSubstring("from 1 to 256"));
  for (const char* bad : {"-1", "nan", "inf", "1e9", "x", "1x"})
    CHECK_THAT(refusal({"--clip", bad}), ContainsSubstring("--clip '") && ContainsSubstring("from 0 to 1000000"));
}

TEST_CASE("extents that do not fit each other are refused with numbers", "[gpt]")
{
  CHECK_THAT(refusal({"--width", "190"}), ContainsSubstring("--width 190 is not divisible by --heads 6"));
  CHECK_THAT(refusal({"--width", "18"}), ContainsSubstring("heads of 3 numbers"));
  CHECK_THAT(refusal({"--layers", "512", "--batch", "4096"}), ContainsSubstring("16384"));
}

TEST_CASE("unknown options and policies are refused by name", "[gpt]")
{
  CHECK_THAT(refusal({"--devise-memory", "1MiB"}), ContainsSubstring("--devise-memory"));
  CHECK_THAT(refusal({"--eviction", "best"}), ContainsSubstring("choose belady, lru, fifo, list_order or cost_aware"));
  CHECK_THAT(refusal({"--layout", "tight"}), ContainsSubstring("choose size_class, best_fit or append"));
  CHECK_THAT(refusal({"--placement", "here"}),
             ContainsSubstring("choose optimizer_on_host, device_margin, fixed_split or update_share"));
  CHECK_THAT(refusal({"--transfer", "fast"}), ContainsSubstring("choose lookahead, no_prefetch or planned"));
  CHECK_THAT(refusal({"--precision", "fp8"}), ContainsSubstring("choose fp32, bf16 or fp16"));
  CHECK_THAT(refusal({"--gradient", "mine"}), ContainsSubstring("choose separate or in_place"));
  CHECK_THAT(refusal({"stray"}), ContainsSubstring("stray"));
  CHECK_THAT(refusal({"--layers"}), ContainsSubstring("--layers"));
  CHECK_THAT(refusal({"--text", ""}), ContainsSubstring("empty value"));
  CHECK_THAT(refusal({"--layers", "2", "--layers", "3"}), ContainsSubstring("--layers"));
}

TEST_CASE("the program of the GPU has options and defaults of its own", "[gpt]")
{
  const auto parse_cuda = [](std::vector<const char*> words) {
    return gpt::parse_options(static_cast<int>(words.size()), words.data(), gpt::program::gpt_cuda);
  };
  CHECK(parse_cuda({}).precision == chunkmem::dtype::bfloat16);
  CHECK(parse_cuda({}).update == gpt::update_choice::placement);
  CHECK(parse_cuda({"--update", "gpu", "--precision", "bf16"}).update == gpt::update_choice::gpu);
  CHECK_THROWS_WITH(parse_cuda({"--precision", "fp32"}),
                    ContainsSubstring("--precision 'fp32' is unknown: choose bf16"));
  CHECK_THROWS_WITH(parse_cuda({"--width", "24", "--heads", "2"}), ContainsSubstring("not a multiple of 8"));
  CHECK_THROWS_WITH(parse_cuda({"--export", "x.json"}), ContainsSubstring("--help"));
  CHECK(parse_cuda({"--ranks", "2", "--update", "cpu"}).ranks == 2);
  CHECK_THROWS_WITH(parse_cuda({"--ranks", "2", "--update", "gpu"}), ContainsSubstring("--update gpu is for one rank"));
  CHECK_THAT(refusal({"--update", "gpu"}), ContainsSubstring("choose at_once, late, early or measured"));
  CHECK_THAT(gpt::help_text(gpt::program::gpt_cuda), ContainsSubstring("gpu (placement)"));
  CHECK_THAT(gpt::help_text(), ContainsSubstring("(at_once)"));
}

TEST_CASE("stages take two micro-batches each by default, and what they cannot do is refused in a sentence", "[gpt]")
{
  CHECK(parse({}).stages == 0);
  const gpt::options chosen = parse({"--stages", "3"});
  CHECK((chosen.stages == 3 && chosen.size.micro_batches == 6 && chosen.schedule == "1f1b"));
  const gpt::options own = parse({"--stages", "2", "--microbatches", "5", "--schedule", "mine.txt"});
  CHECK((own.size.micro_batches == 5 && own.schedule == "mine.txt"));
  for (const char* option : {"--microbatches", "--schedule"})
    CHECK_THAT(refusal({option, "4"}), ContainsSubstring("needs --stages"));
  for (const char* option : {"--trace", "--report", "--export", "--ranks", "--sample", "--accumulate"})
    CHECK_THAT(refusal({"--stages", "2", option, "2"}), ContainsSubstring(option));
  CHECK_THAT(refusal({"--stages", "2", "--activations", "karma"}), ContainsSubstring("choose swap or recompute"));
  CHECK_THAT(refusal({"--stages", "2", "--precision", "bf16", "--gradient", "in_place"}),
             ContainsSubstring("choose --gradient separate"));
  CHECK_THAT(refusal({"--stages", "0"}), ContainsSubstring("--stages"));
}

TEST_CASE("ranks are threads by --ranks and processes without it, and what they cannot do is refused in a sentence",
          "[gpt]")
{
  CHECK(!gpt::over_ranks(parse({})));
  const gpt::options threads = parse({"--ranks", "4", "--shard", "2", "--nodes", "2"});
  CHECK(gpt::over_ranks(threads));
  CHECK((threads.ranks == 4 && threads.shard == 2u && threads.nodes == 2));
  const gpt::options processes = parse({"--shard", "0"});
  CHECK(gpt::over_ranks(processes));
  CHECK((processes.ranks == 0 && processes.shard == 0u));
  CHECK_THAT(refusal({"--shard", "4"}), ContainsSubstring("--shard"));
  CHECK_THAT(refusal({"--ranks", "65"}), ContainsSubstring("--ranks"));
  CHECK_THAT(refusal({"--nodes", "2"}), ContainsSubstring("--nodes needs --ranks or --shard"));
  CHECK_THAT(refusal({"--ranks", "3", "--nodes", "2"}), ContainsSubstring("--ranks 3 does not fill --nodes 2"));
  CHECK_THAT(refusal({"--ranks", "4", "--nodes", "2", "--shard", "0"}),
             ContainsSubstring("--nodes cannot be combined with --shard 0"));
  CHECK(parse({"--ranks", "2"}).gathers_ahead == 0);
  CHECK(parse({"--ranks", "2", "--gathers-ahead", "3"}).gathers_ahead == 3);
  CHECK_THAT(refusal({"--gathers-ahead", "3"}), ContainsSubstring("--gathers-ahead needs --ranks or --shard 3"));
  CHECK_THAT(refusal({"--shard", "2", "--gathers-ahead", "3"}),
             ContainsSubstring("--gathers-ahead is for --shard 3, where weights are divided"));
  for (const char* when : {"late", "early"})
    CHECK_THAT(refusal({"--ranks", "2", "--update", when, "--gathers-ahead", "3"}),
               ContainsSubstring("--gathers-ahead cannot be combined with --update " + std::string{when}));
  CHECK(parse({"--ranks", "2", "--checkpoint", "x", "--resume", "y"}).resume == "y");
  for (const char* option : {"--trace", "--report", "--export"})
    CHECK_THAT(refusal({"--ranks", "2", option, "x"}), ContainsSubstring(std::string{option} + " is for one rank"));
  CHECK_THAT(refusal({"--ranks", "2", "--sample", "5"}), ContainsSubstring("--sample is for one rank"));
  CHECK(refusal({"--ranks", "2", "--precision", "bf16", "--gradient", "in_place"}).empty());
}

}  // namespace options_test
