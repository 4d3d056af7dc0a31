"""The publications that docstrings, attacks and manipulations name by a key: the first author and the year.

A reference is a key with its place in the publication: ``[Pham25], Algorithm 1`` in a docstring, ``"Pham25,
Algorithm 1"`` in the `references` of a class. Pages and ``fedleak list`` print it whole.
"""

import re
from collections.abc import Iterable

BIBLIOGRAPHY = {
    "Abadi16": (
        'M. Abadi, A. Chu, I. Goodfellow, H. B. McMahan, I. Mironov, K. Talwar and L. Zhang, "Deep '
        'Learning with Differential Privacy", CCS 2016, arXiv:1607.00133'
    ),
    "Aitken35": (
        'A. C. Aitken, "On least squares and linear combination of observations", Proceedings of the '
        "Royal Society of Edinburgh, 1935"
    ),
    "Aji17": 'Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017',
    "Alistarh17": (
        'Alistarh, Grubic, Li, Tomioka and Vojnovic, "QSGD: Communication-Efficient SGD via Gradient '
        'Quantization and Encoding", NeurIPS 2017, arXiv:1610.02132'
    ),
    "Alpaydin98": (
        'E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998'
    ),
    "Andreux20": (
        'M. Andreux, J. Ogier du Terrail, C. Beguier and E. W. Tramel, "Siloed Federated Learning for '
        'Multi-Centric Histopathology Datasets", 2020'
    ),
    "Andrew24": (
        'G. Andrew, P. Kairouz, S. Oh, A. Oprea, H. B. McMahan and V. Suriyakumar, "One-shot Empirical '
        'Privacy Estimation for Federated Learning", ICLR 2024, arXiv:2302.03098'
    ),
    "Arivazhagan19": (
        'Arivazhagan, Aggarwal, Singh and Choudhary, "Federated Learning with Personalization Layers", '
        "2019, arXiv:1912.00818"
    ),
    "Arriaga17": (
        'O. Arriaga, M. Valdenegro-Toro and P. Ploeger, "Real-time Convolutional Neural Networks for Emotion and '
        'Gender Classification", 2017, arXiv:1710.07557'
    ),
    "Auckenthaler00": (
        'R. Auckenthaler, M. Carey and H. Lloyd-Thomas, "Score Normalization for Text-Independent Speaker'
        ' Verification Systems", Digital Signal Processing 10, 2000'
    ),
    "Balle18a": ('B. Balle and Y.-X. Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018'),
    "Balle18b": (
        'B. Balle, G. Barthe and M. Gaboardi, "Privacy Amplification by Subsampling: Tight Analyses via '
        'Couplings and Divergences", NeurIPS 2018, arXiv:1807.01647'
    ),
    "Balunovic22": (
        'Balunović, Dimitrov, Staab and Vechev, "Bayesian Framework for Gradient Leakage", ICLR 2022, arXiv:2111.04706'
    ),
    "Balunovic22a": (
        'M. Balunović, D. Dimitrov, N. Jovanović and M. Vechev, "LAMP: Extracting Text from Gradients with Language '
        'Model Priors", NeurIPS 2022, arXiv:2202.08827'
    ),
    "Bernstein18": (
        'Bernstein, Wang, Azizzadenesheli and Anandkumar, "signSGD: Compressed Optimisation for '
        'Non-Convex Problems", ICML 2018'
    ),
    "Birge01": 'L. Birge, "An alternative point of view on Lepski\'s method", IMS Lecture Notes 36, 2001',
    "Boenisch23": (
        'Boenisch, Dziedzic, Schuster, Shamsabadi, Shumailov and Papernot, "When the Curious Abandon '
        'Honesty: Federated Learning Is Not Private", IEEE EuroS&P 2023, arXiv:2112.02918'
    ),
    "Box58": 'Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958',
    "Caldas18": 'S. Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097, 2018',
    "Candes08": (
        'E. J. Candes, M. B. Wakin and S. P. Boyd, "Enhancing Sparsity by Reweighted l1 Minimization", Journal of '
        "Fourier Analysis and Applications, 2008"
    ),
    "Charikar02": 'Charikar, Chen and Farach-Colton, "Finding frequent items in data streams", ICALP 2002',
    "Chen16": 'T. Chen and C. Guestrin, "XGBoost: A Scalable Tree Boosting System", KDD 2016, arXiv:1603.02754',
    "Chen24": (
        'Chen and Vikalo, "Recovering Labels from Local Updates in Federated Learning", ICML 2024, arXiv:2405.00955'
    ),
    "Chen97": (
        'Chen and Liu, "Statistical Applications of the Poisson-Binomial and Conditional Bernoulli '
        'Distributions", Statistica Sinica, 1997'
    ),
    "Clopper34": (
        'C. J. Clopper and E. S. Pearson, "The use of confidence or fiducial limits illustrated in the '
        'case of the binomial", Biometrika, 1934'
    ),
    "Cochran77": 'W. G. Cochran, "Sampling Techniques", 3rd edition, 1977',
    "Cook77": ('R. D. Cook, "Detection of influential observation in linear regression", Technometrics, 1977'),
    "Cover06": 'Cover and Thomas, "Elements of Information Theory", 2nd edition, 2006',
    "Cuff16": ('Cuff and Yu, "Differential Privacy as a Mutual Information Constraint", CCS 2016, arXiv:1608.03677'),
    "Czado09": 'Czado, Gneiting and Held, "Predictive model assessment for count data", Biometrics, 2009',
    "DAgostino86": 'R. B. D\'Agostino and M. A. Stephens, "Goodness-of-Fit Techniques", 1986',
    "Dai24": (
        'Dai, Zhou and Fu, "Decaf: Data Distribution Decompose Attack against Federated Learning", 2024, '
        "arXiv:2405.15316"
    ),
    "Dang21": (
        'Dang, Thakkar, Ramaswamy, Mathews, Chin and Beaufays, "Revealing and Protecting Labels in '
        'Distributed Training", NeurIPS 2021, arXiv:2111.00556'
    ),
    "Davies12": (
        'Davies and Eldar, "Rank Awareness in Joint Sparse Recovery", IEEE Transactions on Information '
        "Theory 2012, arXiv:1004.4529"
    ),
    "DeLong88": (
        'E. R. DeLong, D. M. DeLong and D. L. Clarke-Pearson, "Comparing the Areas under Two or More '
        'Correlated Receiver Operating Characteristic Curves: A Nonparametric Approach", Biometrics '
        "44(3), 1988"
    ),
    "Deng21": (
        'J. Deng, Y. Wang, J. Li, C. Wang, C. Shang, H. Liu, S. Rajasekaran and C. Ding, "TAG: Gradient Attack on '
        'Transformer-based Language Models", Findings of EMNLP 2021, arXiv:2103.06819'
    ),
    "Deng26": (
        'Deng et al., "Toward Efficient Membership Inference Attacks against Federated Large Language '
        'Models: A Projection Residual Approach", IEEE S&P 2026, arXiv:2604.21197'
    ),
    "DiGennaro25": (
        'M. Di Gennaro, G. De Lucia, S. Longari, S. Zanero and M. Carminati, "TimberStrike: Dataset Reconstruction '
        'Attack Revealing Privacy Leakage in Federated Tree-Based Systems", PoPETs 2025, arXiv:2506.07605'
    ),
    "Dimitrov22": (
        'Dimitrov, Balunovic, Konstantinov and Vechev, "Data Leakage in Federated Averaging", TMLR 2022, '
        "arXiv:2206.12395"
    ),
    "Dimitrov24": (
        'Dimitrov, Baader, Mueller and Vechev, "SPEAR: Exact Gradient Inversion of Batches in Federated '
        'Learning", NeurIPS 2024, arXiv:2403.03945'
    ),
    "Dong22": ('J. Dong, A. Roth and W. J. Su, "Gaussian Differential Privacy", JRSS B, 2022, arXiv:1905.02383'),
    "Dorfman43": 'Dorfman, "The Detection of Defective Members of Large Populations", 1943',
    "Dwork14": 'Dwork and Roth, "The Algorithmic Foundations of Differential Privacy", 2014',
    "Efron04a": ('Efron, Hastie, Johnstone and Tibshirani, "Least Angle Regression", Annals of Statistics 32, 2004'),
    "Efron04b": (
        'B. Efron, "Large-Scale Simultaneous Hypothesis Testing: The Choice of a Null Hypothesis", '
        "Journal of the American Statistical Association, 2004"
    ),
    "Efron08": ('B. Efron, "Microarrays, Empirical Bayes and the Two-Groups Model", Statistical Science, 2008'),
    "Efron79": 'Efron, "Bootstrap Methods: Another Look at the Jackknife", Annals of Statistics, 1979',
    "Fincke85": (
        'Fincke and Pohst, "Improved methods for calculating vectors of short length in a lattice", '
        "Mathematics of Computation 1985"
    ),
    "Fisher35": 'R. A. Fisher, "The Design of Experiments", 1935',
    "Fowl22": (
        'Fowl, Geiping, Czaja, Goldblum and Goldstein, "Robbing the Fed: Directly Obtaining Private Data '
        'in Federated Learning with Modified Models", ICLR 2022, arXiv:2110.13057'
    ),
    "Fowl23": (
        'L. Fowl, J. Geiping, S. Reich, Y. Wen, W. Czaja, M. Goldblum and T. Goldstein, "Decepticons: Corrupted '
        'Transformers Breach Privacy in Federated Learning for Language Models", ICLR 2023, arXiv:2201.12675'
    ),
    "Gaffke05": (
        'N. Gaffke, "Three test statistics for a nonparametric one-sided hypothesis on the mean of a '
        'nonnegative variable", Mathematical Methods of Statistics, 2005'
    ),
    "Garov24": (
        'Garov, Dimitrov, Jovanović and Vechev, "Hiding in Plain Sight: Disguising Data Stealing Attacks '
        'in Federated Learning", ICLR 2024, arXiv:2306.03013'
    ),
    "Gavish14": (
        'M. Gavish and D. L. Donoho, "The optimal hard threshold for singular values is 4/sqrt(3)", IEEE '
        "Transactions on Information Theory, 2014"
    ),
    "Geiping20": (
        'Geiping, Bauermeister, Dröge and Moeller, "Inverting Gradients - How easy is it to break privacy'
        ' in federated learning?", NeurIPS 2020, arXiv:2003.14053'
    ),
    "Go09": ('A. Go, R. Bhayani and L. Huang, "Twitter Sentiment Classification using Distant Supervision", 2009'),
    "Goodfellow13": (
        'I. J. Goodfellow et al., "Challenges in Representation Learning: A Report on Three Machine '
        'Learning Contests", ICONIP 2013'
    ),
    "Goodfellow15": (
        'I. J. Goodfellow, J. Shlens and C. Szegedy, "Explaining and Harnessing Adversarial Examples", '
        "ICLR 2015, arXiv:1412.6572"
    ),
    "Hanley82": (
        'Hanley and McNeil, "The meaning and use of the area under a receiver operating characteristic '
        '(ROC) curve", Radiology, 1982'
    ),
    "Hansen01": (
        'N. Hansen and A. Ostermeier, "Completely Derandomized Self-Adaptation in Evolution Strategies", '
        "Evolutionary Computation, 2001"
    ),
    "Harper15": ('F. M. Harper and J. A. Konstan, "The MovieLens Datasets: History and Context", ACM TiiS 5(4), 2015'),
    "Hastie09": 'Hastie, Tibshirani and Friedman, "The Elements of Statistical Learning", 2009',
    "Hastie86": 'Hastie and Tibshirani, "Generalized Additive Models", Statistical Science, 1986',
    "Henderson75": (
        'C. R. Henderson, "Best linear unbiased estimation and prediction under a selection model", Biometrics, 1975'
    ),
    "Hestenes52": 'Hestenes and Stiefel, "Methods of Conjugate Gradients for Solving Linear Systems", 1952',
    "Howard21": (
        'Howard, Ramdas, McAuliffe and Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence '
        'sequences", Annals of Statistics, 2021'
    ),
    "Hsu19": (
        'T.-M. H. Hsu, H. Qi and M. Brown, "Measuring the Effects of Non-Identical Data Distribution for '
        'Federated Visual Classification", 2019, arXiv:1909.06335'
    ),
    "Hu22": (
        'Hu, Shen, Wallis, Allen-Zhu, Li, Wang, Wang and Chen, "LoRA: Low-Rank Adaptation of Large '
        'Language Models", ICLR 2022, arXiv:2106.09685'
    ),
    "Hu23": (
        'Hu, Zhang, Salcic, Sun, Choo and Dobbie, "Source Inference Attacks: Beyond Membership Inference '
        'Attacks in Federated Learning", IEEE TDSC 2023, arXiv:2310.06222'
    ),
    "Ioffe06": 'S. Ioffe, "Probabilistic Linear Discriminant Analysis", ECCV 2006',
    "Ioffe15": (
        'S. Ioffe and C. Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing '
        'Internal Covariate Shift", ICML 2015, arXiv:1502.03167'
    ),
    "Jagielski20": (
        'M. Jagielski, J. Ullman and A. Oprea, "Auditing Differentially Private Machine Learning: How '
        'Private is Private SGD?", NeurIPS 2020, arXiv:2006.07709'
    ),
    "James61": 'James and Stein, "Estimation with Quadratic Loss", 1961',
    "Kairouz21": (
        'Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning '
        'with Secure Aggregation", ICML 2021, arXiv:2102.06387'
    ),
    "Kalajdzievski23": (
        'Kalajdzievski, "A Rank Stabilization Scaling Factor for Fine-Tuning with LoRA", 2023, arXiv:2312.03732'
    ),
    "Kalman60": 'Kalman, "A New Approach to Linear Filtering and Prediction Problems", 1960',
    "Karimireddy19": 'Karimireddy, Rebjock, Stich and Jaggi, "Error Feedback Fixes SignSGD", ICML 2019',
    "Kasiviswanathan14": (
        'Kasiviswanathan and Smith, "On the Semantics of Differential Privacy", Journal of Privacy and '
        "Confidentiality, 2014"
    ),
    "Kay93": 'Kay, "Fundamentals of Statistical Signal Processing: Estimation Theory", 1993',
    "Kerkouche23": (
        'Kerkouche, Ács and Fritz, "Client-specific Property Inference against Secure Aggregation in '
        'Federated Learning", WPES 2023, arXiv:2303.03908'
    ),
    "Kharitonov19": 'E. Kharitonov, "Federated Online Learning to Rank with Evolution Strategies", WSDM 2019',
    "Kingma15": 'D. P. Kingma and J. Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015',
    "Kohavi95": (
        'Kohavi, "A study of cross-validation and bootstrap for accuracy estimation and model selection", IJCAI 1995'
    ),
    "Krizhevsky09": 'A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009',
    "Kuznetsova20": 'A. Kuznetsova et al., "The Open Images Dataset V4", IJCV 128, 2020',
    "LTCodes26": '"Gradient Inversion via LT Codes", 2026',
    "Lam21": (
        'Lam, Wei, Cao, Brooks and Tseng, "Gradient Disaggregation: Breaking Privacy in Federated '
        'Learning by Reconstructing the User Participant Matrix", ICML 2021, arXiv:2106.06089'
    ),
    "Laurent00": (
        'Laurent and Massart, "Adaptive estimation of a quadratic functional by model selection", Annals '
        "of Statistics 2000"
    ),
    "Lawson74": 'Lawson and Hanson, "Solving Least Squares Problems", 1974',
    "LeCun98": (
        'Y. LeCun et al., "Gradient-Based Learning Applied to Document Recognition", Proceedings of the IEEE 86, 1998'
    ),
    "Ledoit04": (
        'Ledoit and Wolf, "A well-conditioned estimator for large-dimensional covariance matrices", '
        "Journal of Multivariate Analysis, 2004"
    ),
    "Li23": (
        'Li, Li and Ribeiro, "Effective passive membership inference attacks in federated learning '
        'against overparameterized models", ICLR 2023'
    ),
    "Liang86": ('Liang and Zeger, "Longitudinal data analysis using generalized linear models", Biometrika, 1986'),
    "Lin04": 'Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", 2004',
    "Liu24": 'Liu et al., "DoRA: Weight-Decomposed Low-Rank Adaptation", ICML 2024, arXiv:2402.09353',
    "London20": 'B. London, "PAC Identifiability in Federated Personalization", 2020',
    "Luby02": 'Luby, "LT Codes", FOCS 2002',
    "Lugannani80": (
        'R. Lugannani and S. Rice, "Saddle point approximation for the distribution of the sum of '
        'independent random variables", Advances in Applied Probability, 1980'
    ),
    "Ma23": (
        'Ma, Sun, Cui, Li, Guo and Liu, "Instance-wise Batch Label Restoration via Gradients in Federated'
        ' Learning", ICLR 2023'
    ),
    "Ma25": 'Ma, Gao, Huang and Wang, "Whispers of Data", 2025, arXiv:2504.21436',
    "Mahendran15": (
        'A. Mahendran and A. Vedaldi, "Understanding Deep Image Representations by Inverting Them", CVPR 2015, '
        "arXiv:1412.0035"
    ),
    "Mahloujifar25": (
        'S. Mahloujifar, L. Melis and K. Chaudhuri, "Auditing f-Differential Privacy in One Run", ICML '
        "2025, arXiv:2410.22235"
    ),
    "Manning08": 'Manning, Raghavan and Schuetze, "Introduction to Information Retrieval", 2008',
    "Marchenko67": (
        'V. A. Marchenko and L. A. Pastur, "Distribution of eigenvalues for some sets of random matrices", 1967'
    ),
    "McFadden74": 'McFadden, "Conditional logit analysis of qualitative choice behavior", 1974',
    "McMahan17": (
        'B. McMahan, E. Moore, D. Ramage, S. Hampson and B. Agüera y Arcas, "Communication-Efficient '
        'Learning of Deep Networks from Decentralized Data", AISTATS 2017, arXiv:1602.05629'
    ),
    "McMahan18": (
        'McMahan, Ramage, Talwar and Zhang, "Learning Differentially Private Recurrent Language Models", ICLR 2018'
    ),
    "Meeden91": (
        'G. Meeden and S. Vardeman, "A noninformative Bayesian approach to interval estimation in finite '
        'population sampling", Journal of the American Statistical Association, 1991'
    ),
    "Melis19": (
        'L. Melis, C. Song, E. De Cristofaro and V. Shmatikov, "Exploiting Unintended Feature Leakage in '
        'Collaborative Learning", IEEE S&P 2019, arXiv:1805.04049'
    ),
    "Minka00": 'Minka, "Estimating a Dirichlet distribution", 2000',
    "Mironov12": ('Mironov, "On Significance of the Least Significant Bits for Differential Privacy", CCS 2012'),
    "Mosimann62": 'Mosimann, "On the compound multinomial distribution", Biometrika, 1962',
    "Naeini15": (
        'Naeini, Cooper and Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning", AAAI 2015'
    ),
    "Nasr19": (
        'Nasr, Shokri and Houmansadr, "Comprehensive Privacy Analysis of Deep Learning", S&P 2019, arXiv:1812.00910'
    ),
    "Nasr21": (
        'M. Nasr, S. Song, A. Thakurta, N. Papernot and N. Carlini, "Adversary Instantiation: Lower '
        'Bounds for Differentially Private Machine Learning", S&P 2021, arXiv:2101.04535'
    ),
    "Nasr23": (
        'Nasr, Hayes, Steinke, Balle, Tramèr, Jagielski, Carlini and Terzis, "Tight Auditing of '
        'Differentially Private Machine Learning", USENIX Security 2023, arXiv:2302.07956'
    ),
    "Near25": (
        'Near, Darais, Lefkovitz and Howarth, "Guidelines for Evaluating Differential Privacy '
        'Guarantees", NIST SP 800-226, 2025'
    ),
    "Ney94": (
        'Ney, Essen and Kneser, "On Structuring Probabilistic Dependences in Stochastic Language '
        'Modelling", Computer Speech and Language 1994'
    ),
    "Neyman33": ('Neyman and Pearson, "On the Problem of the Most Efficient Tests of Statistical Hypotheses", 1933'),
    "Nocedal06": 'Nocedal and Wright, "Numerical Optimization", 2006',
    "Nowak24": (
        'Nowak, Bott, Khachaturov, Puppe, Krenzer and Hekalo, "QBI: Quantile-Based Bias Initialization '
        'for Efficient Private Data Reconstruction in Federated Learning", 2024, arXiv:2406.18745'
    ),
    "Oord16": 'Oord and Bethge, "A note on the evaluation of generative models", ICLR 2016',
    "Oosterhuis18": 'Oosterhuis and de Rijke, "Differentiable Unbiased Online Learning to Rank", CIKM 2018',
    "Orekondy18": (
        'Orekondy, Oh, Zhang, Schiele and Fritz, "Gradient-Leaks: Understanding and Controlling '
        'Deanonymization in Federated Learning", 2018, arXiv:1805.05838'
    ),
    "Otsu79": 'Otsu, "A Threshold Selection Method from Gray-Level Histograms", 1979',
    "Owen07": 'A. B. Owen, "The pigeonhole bootstrap", Annals of Applied Statistics, 2007',
    "Pascanu13": (
        'Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks", ICML 2013, '
        "arXiv:1211.5063"
    ),
    "Pasquini22": (
        'Pasquini, Francati and Ateniese, "Eluding Secure Aggregation in Federated Learning via Model '
        'Inconsistency", ACM CCS 2022, arXiv:2111.07380'
    ),
    "Pauli11": ('Pauli, Racugno and Ventura, "Bayesian composite marginal likelihoods", Statistica Sinica, 2011'),
    "Pearlmutter94": ('B. A. Pearlmutter, "Fast Exact Multiplication by the Hessian", Neural Computation 6(1), 1994'),
    "Perifanis22": (
        'V. Perifanis and P. S. Efraimidis, "Federated Neural Collaborative Filtering", Knowledge-Based '
        "Systems 242, 2022"
    ),
    "Petrov24": (
        'I. Petrov, D. Dimitrov, M. Baader, M. Müller and M. Vechev, "DAGER: Exact Gradient Inversion for'
        ' Large Language Models", NeurIPS 2024, arXiv:2405.15586'
    ),
    "Pham25": (
        'Pham, Kulkarni and Houmansadr, "RAIFLE: Reconstruction Attacks on Interaction-based Federated '
        'Learning with Adversarial Data Manipulation", NDSS 2025, arXiv:2310.19163'
    ),
    "Phong18": (
        'Phong, Aono, Hayashi, Wang and Moriai, "Privacy-Preserving Deep Learning via Additively '
        'Homomorphic Encryption", IEEE TIFS 2018'
    ),
    "Qin13": 'T. Qin and T.-Y. Liu, "Introducing LETOR 4.0 Datasets", arXiv:1306.2597, 2013',
    "Radford19": (
        'Radford, Wu, Child, Luan, Amodei and Sutskever, "Language Models are Unsupervised Multitask Learners", 2019'
    ),
    "Ramakrishna22": (
        'R. Ramakrishna and G. Dan, "Inferring Class-Label Distribution in Federated Learning", AISec 2022'
    ),
    "Reddi21": 'S. Reddi et al., "Adaptive Federated Optimization", ICLR 2021, arXiv:2003.00295',
    "Russakovsky15": ('O. Russakovsky et al., "ImageNet Large Scale Visual Recognition Challenge", IJCV 115, 2015'),
    "Sattler19": (
        'Sattler, Müller and Samek, "Clustered Federated Learning: Model-Agnostic Distributed Multi-Task '
        'Optimization under Privacy Constraints", 2019, arXiv:1910.01991'
    ),
    "Scheliga22a": (
        'Scheliga, Mäder and Seeland, "Combining Variational Modeling with Partial Gradient Perturbation '
        'to Prevent Deep Gradient Leakage", 2022, arXiv:2208.04767'
    ),
    "Scheliga22b": (
        'D. Scheliga, P. Mäder and M. Seeland, "PRECODE - A Generic Model Extension to Prevent Deep '
        'Gradient Leakage", WACV 2022, arXiv:2108.04725'
    ),
    "Scheliga23": (
        'Scheliga, Mäder and Seeland, "Dropout is NOT All You Need to Prevent Gradient Leakage", AAAI '
        "2023, arXiv:2208.06163"
    ),
    "Schler06": 'J. Schler et al., "Effects of Age and Gender on Blogging", AAAI Spring Symposium, 2006',
    "Schweppe65": 'Schweppe, "Evaluation of Likelihood Functions for Gaussian Signals", 1965',
    "Shannon49": 'Shannon, "Communication in the Presence of Noise", Proceedings of the IRE, 1949',
    "Shi26": (
        'Shi, Zhang, Jin, Xiao, Vorobeychik, Yeoh, Zhang, Hou and Lou, "From Efficiency to Leakage: '
        'Privacy Backdoor in Federated Language Model Fine-Tuning", 2026, arXiv:2606.20553'
    ),
    "Silverman86": 'Silverman, "Density Estimation for Statistics and Data Analysis", 1986',
    "Singer11": (
        'A. Singer, "Angular Synchronization by Eigenvectors and Semidefinite Programming", Applied and '
        "Computational Harmonic Analysis, 2011"
    ),
    "Smith17": 'L. N. Smith and N. Topin, "Super-Convergence", 2017, arXiv:1708.07120',
    "So23": (
        'So, Ali, Güler, Jiao and Avestimehr, "Securing Secure Aggregation: Mitigating Multi-Round '
        'Privacy Leakage in Federated Learning", AAAI 2023, arXiv:2106.03328'
    ),
    "Spielman12": (
        'Spielman, Wang and Wright, "Exact Recovery of Sparsely-Used Dictionaries", COLT 2012, arXiv:1206.5882'
    ),
    "Srivastava14": (
        'N. Srivastava, G. Hinton, A. Krizhevsky, I. Sutskever and R. Salakhutdinov, "Dropout: A Simple '
        'Way to Prevent Neural Networks from Overfitting", JMLR 2014'
    ),
    "Stanley11": 'Stanley, "Enumerative Combinatorics I", 2nd edition, 2011',
    "Steck19": 'Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019, arXiv:1905.03375',
    "Steele14": ('G. L. Steele, D. Lea and C. H. Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014'),
    "Steinke23": (
        'T. Steinke, M. Nasr and M. Jagielski, "Privacy Auditing with One (1) Training Run", NeurIPS '
        "2023, arXiv:2305.08846"
    ),
    "Stephens74": 'M. A. Stephens, "EDF statistics for goodness of fit and some comparisons", JASA, 1974',
    "Suimon25": (
        'Suimon, Koizumi, Takemasa and Hasegawa, "Per-element Secure Aggregation against Data '
        'Reconstruction Attacks in Federated Learning", 2025, arXiv:2508.04285'
    ),
    "Sun21": (
        'Sun, Li, Wang, Yang, Li and Chen, "Soteria: Provable Defense against Privacy Leakage in '
        'Federated Learning from Representation Perspective", CVPR 2021, arXiv:2012.06043'
    ),
    "Sun24": (
        'Sun, Li, Li and Ding, "Improving LoRA in Privacy-preserving Federated Learning", ICLR 2024, arXiv:2403.12313'
    ),
    "Tamber17": 'Tamber, "Steam Video Games", Kaggle, 2017',
    "Teunissen98": ('Teunissen, "Success probability of integer GPS ambiguity rounding and bootstrapping", 1998'),
    "Tschandl18": (
        'P. Tschandl, C. Rosendahl and H. Kittler, "The HAM10000 dataset, a large collection of '
        'multi-source dermatoscopic images of common pigmented skin lesions", Scientific Data 5, 2018'
    ),
    "Vero23": (
        'Vero, Balunović, Dimitrov and Vechev, "TabLeak: Tabular Data Leakage in Federated Learning", '
        "ICML 2023, arXiv:2210.01785"
    ),
    "Vovk05": 'Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005',
    "Wainakh22": (
        "Wainakh, Ventola, Müßig, Keim, Garcia Cordero, Zimmer, Grube, Kersting and Mühlhäuser, "
        '"User-Level Label Leakage from Gradients in Federated Learning", PoPETs 2022, arXiv:2105.09369'
    ),
    "Wang04": (
        'Z. Wang, A. Bovik, H. Sheikh and E. Simoncelli, "Image Quality Assessment: From Error Visibility'
        ' to Structural Similarity", IEEE Transactions on Image Processing, 2004'
    ),
    "Wang21": (
        'S. Wang, B. Liu, S. Zhuang and G. Zuccon, "Effective and Privacy-preserving Federated Online '
        'Learning to Rank", ICTIR 2021'
    ),
    "WaudbySmith24": (
        'Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B, 2024'
    ),
    "Wedderburn34": 'Wedderburn, "Lectures on Matrices", 1934',
    "Wolberg95": (
        'Wolberg, Mangasarian, Street and Street, "Breast Cancer Wisconsin (Diagnostic)", UCI Machine '
        "Learning Repository, 1995"
    ),
    "Xiao17": (
        'H. Xiao, K. Rasul and R. Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking '
        'Machine Learning Algorithms", arXiv:1708.07747, 2017'
    ),
    "Yeom18": (
        'Yeom, Giacomelli, Fredrikson and Jha, "Privacy Risk in Machine Learning: Analyzing the '
        'Connection to Overfitting", CSF 2018, arXiv:1709.01604'
    ),
    "Yin21": (
        'Yin, Mallya, Vahdat, Alvarez, Kautz and Molchanov, "See through Gradients: Image Batch Recovery '
        'via GradInversion", CVPR 2021, arXiv:2104.07586'
    ),
    "Yuan23": (
        'Yuan, Yang, Nguyen, Cui, He and Yin, "Interaction-level membership inference attack against '
        'federated recommender systems", WWW 2023'
    ),
    "Zhang15": ('N. Zhang et al., "Beyond Frontal Faces: Improving Person Recognition Using Multiple Cues", CVPR 2015'),
    "Zhang18": (
        'Zhang, Cisse, Dauphin and Lopez-Paz, "mixup: Beyond Empirical Risk Minimization", ICLR 2018, arXiv:1710.09412'
    ),
    "Zhao20": ('Zhao, Mopuri and Bilen, "iDLG: Improved Deep Leakage from Gradients", 2020, arXiv:2001.02610'),
    "Zhao24": (
        'Zhao, Sharma, Elkordy, Ezzeldin, Avestimehr and Bagchi, "LOKI: Large-scale Data Reconstruction '
        'Attack against Federated Learning through Model Manipulation", IEEE S&P 2024, arXiv:2303.12233'
    ),
    "Zhu19": 'Zhu, Liu and Han, "Deep Leakage from Gradients", NeurIPS 2019, arXiv:1906.08935',
    "Zhu25": (
        "Zhu, Li, Gu, Yao, Fan and Han, \"FedMIA: An Effective Membership Inference Attack Exploiting 'All"
        " for One' Principle in Federated Learning\", CVPR 2025, arXiv:2402.06289"
    ),
    "Zou08": (
        'G. Y. Zou and A. Donner, "Construction of confidence limits about effect measures: a general '
        'approach", Statistics in Medicine, 2008'
    ),
}
"""Authors, title, venue and year by key."""

_KEY = re.compile(r"[A-Z][A-Za-z]+\d\d[a-z]?")


def key_of(reference: str) -> str:
    """The key of a reference such as ``Pham25, Algorithm 1``."""
    return reference.partition(",")[0]


def whole_reference(reference: str) -> str:
    """A reference with its publication in the place of the key; as it is without a key, as of an attack of a user.

    >>> whole_reference("London20, Protocol 2")
    'B. London, "PAC Identifiability in Federated Personalization", 2020, Protocol 2'
    """
    key = key_of(reference)
    return BIBLIOGRAPHY.get(key, key) + reference.removeprefix(key)


def with_whole_references(text: str) -> str:
    """A docstring in which publications stand in the place of their keys.

    >>> with_whole_references("The noise model is that of [London20], Equation 3.")
    'The noise model is that of B. London, "PAC Identifiability in Federated Personalization", 2020, Equation 3.'
    """
    return re.sub(rf"\[({_KEY.pattern})\]", lambda match: BIBLIOGRAPHY.get(match[1], match[0]), text)


def publications(references: Iterable[str]) -> dict[str, str]:
    """The publications that some references name, by key, in alphabetical order."""
    keys = sorted({key_of(reference) for reference in references})
    return {key: BIBLIOGRAPHY[key] for key in keys if key in BIBLIOGRAPHY}
